"""Stored in addition to runs: merged batches, changelogs, and the removal of forgotten keys."""
