"""Changelogs as files: what a merge or compaction wrote of the changes it made (merge-semantics §8)."""

from __future__ import annotations

import pyarrow.parquet as pq

from app.core.table import ChangelogFile
from app.storage.layout import Warehouse, changelog_folder
from app.storage.runs import durable_files


def read_changelog(warehouse: Warehouse, table_id: str, folder: str) -> tuple[ChangelogFile, ...]:
    """The files in a changelog folder, by name, which is their order; empty ones are left out."""
    found = []
    for entry in durable_files(warehouse, changelog_folder(table_id, folder)):
        with warehouse.filesystem.open_input_file(entry.path) as source:
            rows = pq.ParquetFile(source).metadata.num_rows
        if rows:
            found.append(ChangelogFile(f"{folder}/{entry.base_name}", rows, entry.size))
    return tuple(sorted(found, key=lambda file: file.name))
