"""What every part of the repository stands on: tables of the database, transactions, checksums."""
