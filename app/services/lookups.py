"""Lookups: one row by primary key, combined from the runs of one snapshot (design §2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.catalog.repository import Repository
from app.core.errors import ErrorCode, NotFound, Unavailable
from app.core.fold import combine_all, finish, lift
from app.core.keys import Key, key_from_text, key_to_json, token_of
from app.core.merge_plan import MergePlan, compile_plan
from app.core.rules import State
from app.core.table import Batch, Snapshot, Table
from app.core.values import encoder
from app.storage.images import Images
from app.storage.staging import read_key_records

__all__ = ["Consistency", "FoundRow", "Images", "get_row", "get_rows"]


class Consistency(StrEnum):
    """What a lookup sees."""

    MERGED = "merged"  # the current snapshot
    LATEST = "latest"  # the snapshot and the batches staged on top of it: read your writes


@dataclass(frozen=True)
class FoundRow:
    """The answer to one lookup: the row as JSON by column name, None if there is none; ``written`` tells whether the
    key
    has a state row although no row is visible (it was deleted).
    """

    key: Key
    row: dict[str, Any] | None
    written: bool
    snapshot_id: int | None


@dataclass(frozen=True)
class _View:
    """What one request sees of a table, held for all its keys."""

    table: Table
    plan: MergePlan
    snapshot: Snapshot | None
    staged: tuple[Batch, ...]


def get_row(
    repository: Repository,
    images: Images,
    table: Table,
    texts: Sequence[str],
    consistency: Consistency = Consistency.MERGED,
    columns: Sequence[str] | None = None,
) -> FoundRow:
    """The row whose key values are ``texts`` in primary-key order.

    Raises ``Invalid`` for a key the schema cannot have and ``NotFound`` (ROW_NOT_FOUND), which tells a deleted row
    from one
    never written.
    """
    key = key_from_text(table.schema, texts)
    found = _find(_view(repository, table, consistency), images, key, columns)
    if found.row is None:
        shown = key_to_json(table.schema, key)
        why = "was deleted" if found.written else "was never written"
        message = f"no row {shown} in {table.full_name}: it {why}"
        raise NotFound(message, code=ErrorCode.ROW_NOT_FOUND, resource_type="ROW", resource_name=str(shown))
    return found


def get_rows(
    repository: Repository,
    images: Images,
    table: Table,
    keys: Sequence[Key],
    consistency: Consistency = Consistency.MERGED,
    columns: Sequence[str] | None = None,
) -> list[FoundRow]:
    """The rows of ``keys`` in their order, all of one snapshot; a missing row is a ``FoundRow`` without row."""
    view = _view(repository, table, consistency)
    return [_find(view, images, key, columns) for key in keys]


def _view(repository: Repository, table: Table, consistency: Consistency) -> _View:
    staged = repository.staged_batches(table.id) if consistency is Consistency.LATEST else []
    return _View(table, compile_plan(table.schema), repository.current_snapshot(table.id), tuple(staged))


def _find(view: _View, images: Images, key: Key, columns: Sequence[str] | None) -> FoundRow:
    state = combine_all(view.plan, _states(view, images, key))
    row = None if state is None else finish(view.plan, state)
    snapshot_id = view.snapshot.id if view.snapshot else None
    if row is None:
        return FoundRow(key, None, state is not None, snapshot_id)
    wanted = columns or [column.name for column in view.table.schema.columns]
    by_name = view.table.schema.by_name
    return FoundRow(key, {name: encoder(by_name[name].type)(row[name]) for name in wanted}, True, snapshot_id)


def _states(view: _View, images: Images, key: Key) -> Iterator[State]:
    """The key's state rows, oldest first: one of each run that has it, then its staged records."""
    try:
        yield from _read_states(view, images, key)
    except FileNotFoundError as error:
        # The table was dropped, or the batch withdrawn, after the catalog was read.
        raise Unavailable(f"the files of {view.table.full_name} changed while they were read; ask again") from error


def _read_states(view: _View, images: Images, key: Key) -> Iterator[State]:
    table = view.table
    token = token_of(table.schema, key)
    for run in view.snapshot.runs if view.snapshot else ():
        state = images.find(table.id, run, token, table.schema.primary_key, key)
        if state is not None:
            yield dict(state)
    for batch in view.staged:
        for record in read_key_records(images.warehouse, table.id, batch.file, batch.number, table.schema, key):
            yield lift(view.plan, record)
