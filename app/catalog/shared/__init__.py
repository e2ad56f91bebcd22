"""Shared by all parts of the repository: tables of the database, transactions, checksums."""
