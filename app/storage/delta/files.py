"""Data files as actions of a Delta log: path, statistics and deletion vector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import quote

from app.core.table.history import DataFile, Run
from app.core.table.published import Published
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse, data_file
from app.storage.delta.vectors import deletion_vector
from app.storage.published.facts import FileFacts, facts_of


def added_files(warehouse: Warehouse, published: Published) -> dict[str, dict[str, Any]]:
    """Return the ``add`` of every file that a version shows, by path below the table's folder.

    Equal runs give equal actions, by any worker and at any time. Raise ``DamagedFile``, and ``Unfoldable`` where a
    row has a total that its column cannot hold, which no commit lets through (decision 5).
    """
    found = {}
    for run in published.runs:
        for file in run.files:
            path = "/".join(data_file(published.version.table_id, run.id, file.name)[1:])
            found[path] = _add(warehouse, published, run, file, path)
    return found


def _add(warehouse: Warehouse, published: Published, run: Run, file: DataFile, path: str) -> dict[str, Any]:
    facts = facts_of(warehouse, published, run, file)
    vector = deletion_vector(facts.dead)
    action: dict[str, Any] = {
        "path": quote(path, safe="/=._-"),
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": 0 if run.changed_at is None else int(run.changed_at.timestamp() * 1000),
        "dataChange": True,
        "stats": json.dumps(_stats(facts, file.rows, published.schema)),
    }
    return action | ({"deletionVector": vector} if vector else {})


def removed_file(action: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return the ``remove`` of what an ``add`` added, at ``at`` (epoch milliseconds): file and deletion vector name
    it.
    """
    kept = {name: action[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in action}
    return {**kept, "deletionTimestamp": at, "dataChange": True, "extendedFileMetadata": True}


def _stats(facts: FileFacts, rows: int, schema: TableSchema) -> dict[str, Any]:
    """Of the columns that the table has now; the bounds are those of hidden rows too."""
    names = schema.by_name
    return {
        "numRecords": rows,
        "minValues": {name: _json(low) for name, low, _ in facts.bounds if name in names},
        "maxValues": {name: _json(high) for name, _, high in facts.bounds if name in names},
        "nullCount": {name: nulls for name, nulls in facts.null_counts if name in names},
        "tightBounds": not facts.dead,
    }


def _json(bound: int | str | date) -> int | str:
    return bound.isoformat() if isinstance(bound, date) else bound
