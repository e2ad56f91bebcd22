"""Data files as actions of a Delta log: path, statistics and deletion vector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import quote

from pyroaring import BitMap

from app.core.table.published import Published
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse, changelog_file, data_file
from app.files.named_files import file_of_changelog
from app.storage.delta.vectors import deletion_vector
from app.storage.published.facts import FileFacts, facts_of, facts_of_changes, read_facts
from app.storage.published.replaced_rows import hidden_rows


def added_files(warehouse: Warehouse, published: Published) -> dict[str, dict[str, Any]]:
    """Return the ``add`` of every file that a version shows, by its path below the table's folder and its deletion
    vector: for a reader the same file with another vector is another file.

    Equal versions give equal actions, by any worker and at any time. Raise ``DamagedFile``, and ``Unfoldable`` if a
    row has a total that its column cannot hold, which commits prevent (decision 5).
    """
    read_facts(warehouse, published, published.runs)
    hidden = hidden_rows(warehouse, published)
    actions = {}
    for file in (*_of_runs(warehouse, published), *_of_changes(warehouse, published)):
        action = _add(file, hidden.get("/".join(file.segments), BitMap()), published.schema)
        actions[f"{action['path']} {action.get('deletionVector', {}).get('pathOrInlineDv', '')}"] = action
    return actions


@dataclass(frozen=True)
class _File:
    """A file that a version shows; ``changed_at`` is in epoch milliseconds, 0 if it is not known."""

    segments: tuple[str, ...]
    rows: int
    size_bytes: int
    facts: FileFacts
    changed_at: int = 0


def _of_runs(warehouse: Warehouse, published: Published) -> Iterator[_File]:
    for run in published.runs:
        changed_at = 0 if run.changed_at is None else int(run.changed_at.timestamp() * 1000)
        for file in run.files:
            segments = data_file(published.version.table_id, run.id, file.name)
            facts = facts_of(warehouse, published, run, file)
            yield _File(segments, file.rows, file.size_bytes, facts, changed_at)


def _of_changes(warehouse: Warehouse, published: Published) -> Iterator[_File]:
    table_id = published.version.table_id
    for changes in published.changes:
        for file in changes.files:
            named = file_of_changelog(table_id, changes.snapshot_id, file)
            facts = facts_of_changes(warehouse, published, changes, named)
            yield _File(changelog_file(table_id, file.name), file.rows, file.size_bytes, facts)


def _add(file: _File, hidden: BitMap, schema: TableSchema) -> dict[str, Any]:
    dead = hidden | file.facts.dead
    vector = deletion_vector(dead)
    statistics = _stats(file.facts, file.rows, schema, tight=not dead)
    action: dict[str, Any] = {
        "path": quote("/".join(file.segments[1:]), safe="/=._-"),
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": file.changed_at,
        "dataChange": True,
        # Texts stand there as they are: of \ud842\udfb7 readers made another character, and left out its file.
        "stats": json.dumps(statistics, ensure_ascii=False),
    }
    return action | ({"deletionVector": vector} if vector else {})


def removed_file(action: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return the ``remove`` action for an ``add``, at ``at`` (epoch milliseconds): file and deletion vector name it."""
    members = {name: action[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in action}
    return {**members, "deletionTimestamp": at, "dataChange": True, "extendedFileMetadata": True}


def _stats(facts: FileFacts, rows: int, schema: TableSchema, *, tight: bool) -> dict[str, Any]:
    """Return the statistics of the table's present columns; the bounds include hidden rows."""
    names = schema.by_name
    return {
        "numRecords": rows,
        "minValues": {name: _json(low) for name, low, _ in facts.bounds if name in names},
        "maxValues": {name: _json(high) for name, _, high in facts.bounds if name in names},
        "nullCount": {name: nulls for name, nulls in facts.null_counts if name in names},
        "tightBounds": tight,
    }


def _json(bound: int | str | date) -> int | str:
    return bound.isoformat() if isinstance(bound, date) else bound
