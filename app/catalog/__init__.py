"""The catalog of databases, tables, batches, tasks, runs and snapshots. The only SQL of the project.

``CatalogDatabase`` opens transactions, ``Repository`` reads and writes inside one and never commits by itself.
"""
