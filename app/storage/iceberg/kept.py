"""Iceberg's files of a table: which are there, and which go."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from app.files.folders import Entry, entries, remove, remove_file
from app.files.layout import Warehouse, iceberg_file

_NUMBERED: Final = re.compile(r"snap-([0-9]+)\.avro|([0-9]+)-[0-9a-f-]+\.metadata\.json")


def published_files(warehouse: Warehouse, table_id: str) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """Return the files of versions, and the folders of runs."""
    of_versions = entries(warehouse, warehouse.path(*iceberg_file(table_id, "metadata")))
    return of_versions, entries(warehouse, warehouse.path(*iceberg_file(table_id, "runs")))


def forget_files(
    warehouse: Warehouse, found: tuple[Sequence[Entry], Sequence[Entry]], first: int, live_runs: Collection[str]
) -> None:
    """Remove of ``found`` the files of versions before ``first``, and of runs that are not live."""
    of_versions, of_runs = found
    for entry in of_versions:
        match = _NUMBERED.fullmatch(entry.name)
        if match is not None and int(match[1] or match[2]) < first:
            remove_file(warehouse, entry.path)
    for entry in of_runs:
        if entry.name not in live_runs:
            remove(warehouse, entry.path)
