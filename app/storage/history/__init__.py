"""Stored in addition to runs: merged batches, late records, changelogs, and the removal of forgotten keys."""
