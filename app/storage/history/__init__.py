"""What is kept beside runs: merged batches, late records, changelogs, what is forgotten."""
