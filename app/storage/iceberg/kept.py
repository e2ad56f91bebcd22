"""Iceberg's files of a table: listed, and removed when they expire."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from app.files.folders import Entry, entries, remove, remove_file
from app.files.layout import Warehouse, iceberg_file

_NUMBERED: Final = re.compile(
    r"(?:snap-([0-9]+)\.avro|([0-9]+)-[0-9a-f-]+\.metadata\.json|changes-([0-9]+)-[a-z]+\.[a-z]+)"
)
_HIDDEN: Final = re.compile(r"(.*)\.([0-9]+)\.hidden")


def published_files(warehouse: Warehouse, table_id: str) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """Return the files of versions, and those that belong to runs and changelogs, each in its folder."""
    of_versions = entries(warehouse, warehouse.path(*iceberg_file(table_id, "metadata")))
    return of_versions, entries(warehouse, warehouse.path(*iceberg_file(table_id, "runs")), recursive=True)


def is_live(folder: str, name: str, runs: Collection[str], changelogs: Collection[str]) -> bool:
    """Return whether a file ``name`` that belongs to the run or the changelog of ``folder`` may be needed: manifests of
    live runs, and lists of hidden rows of live runs and changelogs. A run and a changelog of one task share a folder.
    """
    return folder in runs or (folder in changelogs and _HIDDEN.fullmatch(name) is not None)


def forget_files(
    warehouse: Warehouse,
    stored: tuple[Sequence[Entry], Sequence[Entry]],
    first: int,
    runs: Collection[str],
    changelogs: Collection[str],
) -> None:
    """Remove the ``stored`` files of versions before ``first``, and those of runs and changelogs that are not live."""
    of_versions, of_runs = stored
    for entry in of_versions:
        match = _NUMBERED.fullmatch(entry.name)
        if match is not None and int(match[1] or match[2] or match[3]) < first:
            remove_file(warehouse, entry.path)
    hidden: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for entry in of_runs:
        if entry.is_folder:
            if entry.name not in runs and entry.name not in changelogs:
                remove(warehouse, entry.path)
            continue
        folder = entry.path.rsplit("/", 2)[1]
        match = _HIDDEN.fullmatch(entry.name)
        if not is_live(folder, entry.name, runs, changelogs):
            remove_file(warehouse, entry.path)
        elif match is not None:
            hidden[f"{folder}/{match[1]}"].append((int(match[2]), entry.path))
    for files in hidden.values():
        # A version shows the last that came before it, or with it.
        before = sorted(file for file in files if file[0] <= first)[:-1]
        for _, path in before:
            remove_file(warehouse, path)
