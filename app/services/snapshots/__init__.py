"""Snapshots of a table: listed, named by tags, rolled back to, followed as changelogs."""
