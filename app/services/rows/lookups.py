"""Lookups: one row by primary key, combined from the runs of one snapshot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.catalog.repository import Repository
from app.core.errors import ErrorCode, FaultCode, Invalid, NotFound, Violation
from app.core.hints import cut, some_of
from app.core.plan.merging.evolution import combined_row
from app.core.plan.merging.fold import combine_all, finish, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.merging.whole_rows import Standing
from app.core.plan.records.answers import key_json, row_json, tag_of, to_json
from app.core.plan.records.integers import body_as_text, integers_of
from app.core.table.history import Run, Table
from app.core.table.keys import Key, key_from_text, key_to_json, partition_of, token_of, tokens_of
from app.core.table.options.entries import Consistency, Integers
from app.core.table.records import batch_number
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.services.rows.views import View, schemas_of, view_of
from app.services.snapshots.snapshots import find_snapshot
from app.storage.images import ABSENT, DELETED, Answer, Images, ReadBytes

_MOST_READ: Final = 16  # files that are opened to explain a missing row: each costs as much as a lookup
_SHOWN: Final = json.JSONEncoder(ensure_ascii=False)
__all__ = ["Consistency", "FoundRow", "Images", "get_row", "get_rows", "imaged_row", "row_of", "spelled", "view_at"]


class FoundRow(NamedTuple):
    """The answer to one lookup: the row as a JSON object, None if there is none, and its ETag, which does not depend
    on how the answer was made. ``written``: the key has a state row, so a missing row was deleted. ``table`` has the
    schema of the row.
    """

    key: Key
    body: bytes | None
    tag: str | None
    written: bool
    snapshot_id: int | None
    table: Table

    @property
    def row(self) -> dict[str, Any] | None:
        """The row as JSON by column name."""
        row: dict[str, Any] | None = None if self.body is None else json.loads(self.body)
        return row

    @property
    def shown_key(self) -> dict[str, Any]:
        """The key as JSON by column name."""
        return key_to_json(self.table.schema, self.key)


def spelled(row: FoundRow, requested: Integers | None) -> tuple[bytes, str | None]:
    """Return the row's JSON and its tag, with whole numbers in the requested form."""
    body = row.body or b""
    schema = row.table.schema
    if row.body is None or integers_of(schema, requested) is Integers.NUMBER:
        return body, row.tag
    text = body_as_text(schema, body)
    return text, tag_of(text)


StoredState = tuple[TableSchema, Mapping[str, Any]]


def get_row(
    repository: Repository,
    images: Images,
    table: Table,
    texts: Sequence[str],
    consistency: Consistency = Consistency.MERGED,
    columns: Sequence[str] | None = None,
    version: str | None = None,
) -> FoundRow:
    """Return the row as ``row_of`` does, read in the transaction of ``table``.

    ``version`` is a snapshot's number or a tag: the row at that snapshot, under its schema. Raise ``NotFound`` if it
    does not exist.
    """
    return row_of(_view(repository, table, consistency, version), images, texts, columns, version)


def row_of(
    view: View, images: Images, texts: Sequence[str], columns: Sequence[str] | None = None, version: str | None = None
) -> FoundRow:
    """Return the row whose key values are ``texts`` in primary-key order; ``version`` is the one requested of
    ``view``, for messages.

    Raise ``Invalid`` for a key or columns that the schema does not have, and ``NotFound`` (ROW_NOT_FOUND), which says
    whether the row was deleted or never written.
    """
    row = find(view, images, key_from_text(view.table.schema, texts), wanted_columns(view, columns))
    waits = _waiting(view, images.warehouse, row.key) if row.body is None else None
    return existing_row(row, version, waits)


def imaged_row(
    view: View, images: Images, texts: Sequence[str], columns: Sequence[str] | None = None, version: str | None = None
) -> FoundRow | None:
    """Return the row as ``row_of`` does; None if the answer needs more than mapped images."""
    wanted = wanted_columns(view, columns)
    key = key_from_text(view.table.schema, texts)
    answer = _imaged(view, images, key)
    if answer is None or (answer.body is None and view.latest is not None and view.latest.staged):
        return None
    return existing_row(_row_of_answer(view, key, answer, wanted), version)


def _waiting(view: View, warehouse: Warehouse, key: Key) -> str | None:
    """Return a message that a staged batch outside ``view`` has the key, or may have it; None if none does."""
    if view.latest is None:
        return None
    if len(view.latest.unread) > _MOST_READ:
        return f"one of {len(view.latest.staged)} staged batches may have it"
    first = next(view.latest.staged_records(warehouse, key), None)
    return None if first is None else f"batch {batch_number(first.arrival)} is staged"


def existing_row(row: FoundRow, version: str | None, waits: str | None = None) -> FoundRow:
    """Return ``row``. Raise ``NotFound`` if there is no row; ``version`` is as in ``row_of``; ``waits`` says which
    staged records the key has.
    """
    if row.body is None:
        shown = _SHOWN.encode(row.shown_key)
        why = "was deleted" if row.written else "was never written"
        if waits is not None:
            why = f"{'was deleted' if row.written else 'is not merged yet'}: {waits}"
        name = row.table.full_name
        where = name if version is None else f"snapshot {row.snapshot_id} of {name}"
        message = f"no row {shown} in {where}: it {why}"
        raise NotFound(message, code=ErrorCode.ROW_NOT_FOUND, resource_type="ROW", resource_name=shown)
    return row


def get_rows(
    repository: Repository,
    images: Images,
    table: Table,
    keys: Sequence[Key],
    consistency: Consistency = Consistency.MERGED,
    columns: Sequence[str] | None = None,
) -> list[FoundRow]:
    """Return the rows of ``keys`` in their order, all of one snapshot; a missing row is a ``FoundRow`` without row."""
    view = _view(repository, table, consistency)
    wanted = wanted_columns(view, columns)
    return [find(view, images, key, wanted) for key in keys]


def wanted_columns(view: View, columns: Sequence[str] | None, pointer: str = "/columns") -> Sequence[str]:
    """Return the columns to answer, by default all. Raise ``Invalid`` for unknown columns, with their place
    ``pointer`` in the request.
    """
    if not columns:
        return view.columns
    known = view.table.schema.by_name
    if unknown := [name for name in columns if name not in known]:
        fix = f"columns: {some_of(known)}"
        faults = [
            Violation(pointer, FaultCode.UNKNOWN_COLUMN, f"the table has no column {cut(name)!r}", fix)
            for name in unknown
        ]
        raise Invalid("the request names unknown columns", violations=faults)
    return columns


def latest_state(repository: Repository, images: Images, table: Table) -> Callable[[Key], Mapping[str, Any] | None]:
    """Return a function from a key to its state row, staged records included, all from one view."""
    view = view_of(repository, table)
    return lambda key: _state(view, images, key)


def _view(repository: Repository, table: Table, consistency: Consistency, version: str | None = None) -> View:
    if version is not None:
        return view_at(repository, table, version)
    seen = view_of(repository, table)
    return seen if consistency is Consistency.LATEST else seen.merged


def view_at(repository: Repository, table: Table, version: str) -> View:
    """Return the table at the snapshot of ``version``, with its schema at that time. Raise ``NotFound``."""
    snapshot = find_snapshot(repository, table, version)
    shown = repository.tables.under(table, snapshot.schema_id)
    return View(shown, compile_plan(shown.schema), snapshot, schemas_of(repository, shown, snapshot))


def find(view: View, images: Images, key: Key, columns: Sequence[str]) -> FoundRow:
    """Return the answer for a key, as the view sees it."""
    answer = _imaged(view, images, key)
    if answer is None:
        answer = folded(view, _state(view, images, key))
    return _row_of_answer(view, key, answer, columns)


def _row_of_answer(view: View, key: Key, answer: Answer, columns: Sequence[str]) -> FoundRow:
    body = answer.body
    if body is not None and columns is not view.columns:
        row = json.loads(body)
        body = to_json({name: row[name] for name in columns})
    tag = None if body is None else tag_of(body)
    return FoundRow(key, body, tag, answer.written, view.snapshot_id, view.table)


def folded(view: View, state: Mapping[str, Any] | None) -> Answer:
    """Return the answer for a key's state row."""
    row = None if state is None else finish(view.plan, state)
    if row is None:
        return ABSENT if state is None else DELETED
    return Answer(row_json(view.table.schema, row), True)


def _imaged(view: View, images: Images, key: Key) -> Answer | None:
    """Return the images' answer for a key: finished bytes if a single run has the key, or one run's row wins as a
    whole. None if state rows must be combined, or an image is not built yet.
    """
    schema = view.table.schema
    token = token_of(schema, key)
    if view.may_be_staged(token):
        return None
    text = key_json(schema, key)
    older = ABSENT
    for run in view.by_partition.get(partition_of(schema, key), ()):
        written = view.readable[run.schema_id]
        answer = None if written is None else images.answer(view.table.id, run, written, view.plan, token, text)
        if answer is None:
            return None
        if answer is ABSENT:
            continue
        if view.deciding is not None:
            return answer
        both = answer_of_both(view.plan, older, answer)
        if both is None:
            return None
        older = both
    return older


def answer_of_both(plan: MergePlan, older: Answer, newer: Answer) -> Answer | None:
    """Return the answer for a key of two runs; None if it needs their state rows combined."""
    if not newer.written:
        return older
    if not older.written:
        return newer
    if plan.whole is None:
        return None
    standings = (Standing(answer.standing, adds=answer.body is not None) for answer in (older, newer))
    return newer if plan.whole.newer_wins(*standings) else older


def _state(view: View, images: Images, key: Key) -> Mapping[str, Any] | None:
    """Return the key's state row under the current plan. Raise ``DamagedFile``; it is ``missing`` also if nothing
    names the file any more.
    """
    return next(states_of(view, images, [key]))


def stored_state(view: View, images: Images, key: Key) -> StoredState | None:
    """Return the key's state row in the snapshot, under the schema of the newest run that has it; None if no run has
    it.
    """
    [states] = _stored_states(view, images, [key], None)
    if not states:
        return None
    schema = states[-1][0]
    state = combined_row(compile_plan(schema), [(compile_plan(written), state) for written, state in states])
    return None if state is None else (schema, state)


def states_of(
    view: View, images: Images, keys: Sequence[Key], read: ReadBytes | None = None
) -> Iterator[Mapping[str, Any] | None]:
    """Return the state row of each key, as ``_state`` does. Stored rows are read at once, staged records as states are
    consumed.

    Raise ``TooMuchAtOnce`` at once for more than may be ``read``.
    """
    stored = _stored_states(view, images, keys, read)
    return (combined_state(view, images.warehouse, key, states) for key, states in zip(keys, stored, strict=True))


def combined_state(
    view: View, warehouse: Warehouse, key: Key, states: Sequence[StoredState]
) -> Mapping[str, Any] | None:
    """Return the combined state of a key: of ``states``, one per run, oldest first, then of its staged records."""
    merged = combined_row(view.plan, [(compile_plan(schema), state) for schema, state in states])
    staged = lifted(view, warehouse, key)
    return combine_all(view.plan, staged if merged is None else [merged, *staged])


def lifted(view: View, warehouse: Warehouse, key: Key) -> list[Mapping[str, Any]]:
    """Return the state row of each staged record of a key, in arrival order."""
    return [lift(view.plan, record) for record in view.staged_records(warehouse, key)]


def _stored_states(view: View, images: Images, keys: Sequence[Key], read: ReadBytes | None) -> list[list[StoredState]]:
    """Return each key's state row in each run that has it, oldest first, with the schema it was written under."""
    by_key: list[list[StoredState]] = [[] for _ in keys]
    for run, places in runs_of(view, keys, view.runs):
        schema = view.schemas[run.schema_id]
        wanted = [keys[place] for place in places]
        tokens = tokens_of(schema, wanted)
        states = images.find_all(view.table.id, run, tokens, schema.primary_key, wanted, read)
        for place, state in zip(places, states, strict=True):
            if state is not None:
                by_key[place].append((schema, state))
    return by_key


def runs_of(view: View, keys: Sequence[Key], runs: Sequence[Run]) -> Iterator[tuple[Run, Sequence[int]]]:
    """Yield the ``runs`` of the snapshot, each with the places of the keys in its partition."""
    schema = view.table.schema
    if not schema.partition_keys:
        yield from ((run, range(len(keys))) for run in runs)
        return
    places: dict[str | None, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[partition_of(schema, key)].append(place)
    yield from ((run, places[run.partition]) for run in runs if run.partition in places)
