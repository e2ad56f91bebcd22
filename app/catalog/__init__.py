"""The catalog: what databases, tables, batches, tasks, runs and snapshots there are. The only SQL of the project.

``CatalogDatabase`` opens transactions, ``Repository`` reads and writes inside one and never commits by itself.
"""
