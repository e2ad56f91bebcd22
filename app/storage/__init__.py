"""Files: the staging area, runs and images; the only file access while serving."""
