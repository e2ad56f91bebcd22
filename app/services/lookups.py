"""Lookups: one row by primary key, combined from the runs of one snapshot (design §2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.catalog.repository import Repository
from app.core.epochs import carried_over, renamed, same_fold
from app.core.errors import ErrorCode, NotFound, Unavailable
from app.core.fold import combine_all, finish, lift
from app.core.keys import Key, key_from_text, key_to_json, token_of
from app.core.merge_plan import MergePlan, compile_plan
from app.core.records import Record
from app.core.schema import TableSchema
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
    key has a state row although no row is visible (it was deleted).
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
    schemas: Mapping[int, TableSchema]  # those under which runs and staged batches were written


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
    from one never written.
    """
    key = key_from_text(table.schema, texts)
    found = _find(_view(repository, table, consistency), images, key, columns)
    if found.row is None:
        shown = json.dumps(key_to_json(table.schema, key), ensure_ascii=False)
        why = "was deleted" if found.written else "was never written"
        message = f"no row {shown} in {table.full_name}: it {why}"
        raise NotFound(message, code=ErrorCode.ROW_NOT_FOUND, resource_type="ROW", resource_name=shown)
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


def latest_state(repository: Repository, images: Images, table: Table) -> Callable[[Key], Mapping[str, Any] | None]:
    """A function from a key to its state row, staged records included, all of one moment."""
    view = _view(repository, table, Consistency.LATEST)
    return lambda key: _state(view, images, key)


def _view(repository: Repository, table: Table, consistency: Consistency) -> _View:
    staged = repository.staged_batches(table.id) if consistency is Consistency.LATEST else []
    snapshot = repository.current_snapshot(table.id)
    written = {run.schema_id for run in (snapshot.runs if snapshot else ())} | {batch.schema_id for batch in staged}
    schemas = {number: repository.schema_at(table.id, number) for number in written - {table.schema_id}}
    schemas[table.schema_id] = table.schema
    return _View(table, compile_plan(table.schema), snapshot, tuple(staged), schemas)


def _find(view: _View, images: Images, key: Key, columns: Sequence[str] | None) -> FoundRow:
    state = _state(view, images, key)
    row = None if state is None else finish(view.plan, state)
    snapshot_id = view.snapshot.id if view.snapshot else None
    if row is None:
        return FoundRow(key, None, state is not None, snapshot_id)
    wanted = columns or [column.name for column in view.table.schema.columns]
    by_name = view.table.schema.by_name
    return FoundRow(key, {name: encoder(by_name[name].type)(row[name]) for name in wanted}, True, snapshot_id)


def _state(view: _View, images: Images, key: Key) -> Mapping[str, Any] | None:
    """The key's state row under the current plan; raises ``Unavailable`` when its files vanished meanwhile."""
    try:
        return _read_state(view, images, key)
    except FileNotFoundError as error:
        # The table was dropped, or a batch withdrawn, after the catalog was read.
        raise Unavailable(f"the files of {view.table.full_name} changed while they were read; ask again") from error


def _read_state(view: _View, images: Images, key: Key) -> Mapping[str, Any] | None:
    """Its state in every run, oldest first, then its staged records."""
    plan = view.plan
    states: list[Mapping[str, Any]] = []
    for schema, state in _stored_states(view, images, key):
        entered = _entered(states, plan, compile_plan(schema))
        states, plan = [*entered, state], compile_plan(schema)
    states = _entered(states, plan, view.plan)
    states += [lift(view.plan, record) for record in _staged_records(view, images, key)]
    return combine_all(view.plan, states)


def _entered(states: list[Mapping[str, Any]], plan: MergePlan, next_plan: MergePlan) -> list[Mapping[str, Any]]:
    """States of ``plan`` as states of ``next_plan``: as they are while the meaning is the same, else as one first
    record.
    """
    if plan.schema is next_plan.schema or not states:
        return states
    if same_fold(plan.schema, next_plan.schema):
        added = dict.fromkeys(hidden.name for hidden in next_plan.hidden)  # an added column's: null, as Spark reads it
        return [{**added, **renamed(state, plan.schema, next_plan.schema)} for state in states]
    combined = combine_all(plan, states)
    carried = None if combined is None else carried_over(combined, plan, next_plan)
    return [] if carried is None else [carried]


def _stored_states(view: _View, images: Images, key: Key) -> Iterator[tuple[TableSchema, Mapping[str, Any]]]:
    """The key's state row in each run that has it, oldest first, with the schema it was written under."""
    for run in view.snapshot.runs if view.snapshot else ():
        schema = view.schemas[run.schema_id]
        state = images.find(view.table.id, run, token_of(schema, key), schema.primary_key, key)
        if state is not None:
            yield schema, state


def _staged_records(view: _View, images: Images, key: Key) -> Iterator[Record]:
    for batch in view.staged:
        schema = view.schemas[batch.schema_id]
        for record in read_key_records(images.warehouse, view.table.id, batch.file, batch.number, schema, key):
            yield Record(record.kind, renamed(record.values, schema, view.table.schema), record.arrival)
