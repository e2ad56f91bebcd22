"""What is kept in addition to runs: merged batches, late records, changelogs, what is forgotten."""
