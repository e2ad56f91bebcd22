"""Two snapshots compared by key: the changes that a merge made to rows, or that all commits in between made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, ErrorCode, NotFound, Resource, not_found
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.integers import integers_of
from app.core.table.history import CatalogTask, Run, Snapshot, SnapshotKind, Table, TaskState
from app.core.table.options.entries import Integers
from app.files.layout import Warehouse
from app.files.reading import TokenRange
from app.files.tokens import Tokens
from app.services.rows.lookups import wanted_columns
from app.services.rows.scan_pages import ScanRoom
from app.services.rows.scans import NDJSON, WRITERS, Scan
from app.services.rows.views import View, schemas_of
from app.services.shared.damage import read_again
from app.services.snapshots.snapshots import find_snapshot
from app.storage.scans.comparing import Difference, Sides, differences
from app.storage.scans.writers import text_bytes

MOST_SAMPLE: Final = 100  # examples each of added, changed and removed rows
# All examples together have about this size at most.
MOST_SAMPLE_BYTES: Final = 8 * 2**20
_TOKENS: Final = 2**64


@dataclass(frozen=True)
class Bounds:
    """The most that one comparison reads: ``keys`` of the runs that differ, and ``cells`` (rows times columns) of
    their row groups.
    """

    keys: int = 150_000
    cells: int = 300_000_000


BOUNDS: Final = Bounds()


class Became(StrEnum):
    """The kinds of change between two snapshots."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True)
class RowChange:
    """A row before and after, as JSON by column; None if there was none. ``columns`` are those that differ."""

    became: Became
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    columns: Sequence[str]


@dataclass(frozen=True)
class ColumnChanges:
    """The number of changed rows in which a column differs."""

    column: str
    changed: int


@dataclass(frozen=True)
class Comparison:
    """The changes of rows between two snapshots (None: before the first merge).

    ``keys`` counts those in the runs between them; ``unchanged`` counts the keys whose rows are equal. Unless
    ``exact``, the counts are extrapolated from the keys in that ``share`` of all tokens.
    """

    since: int | None
    snapshot_id: int | None
    exact: bool
    share: float
    keys: int
    added: int
    changed: int
    removed: int
    unchanged: int
    columns: Sequence[ColumnChanges]
    sample: Sequence[RowChange]


@dataclass(frozen=True)
class Compared:
    """The runs of two snapshots, shown by the plan of ``view``, which has the schemas of both."""

    view: View
    since: int | None
    before: Sequence[Run]
    after: Sequence[Run]

    @property
    def columns_read(self) -> int:
        """The most columns of files that are read at a time."""
        runs = max((len({run.id for run in (*side.before, *side.after)}) for side in self.sides), default=0)
        return runs * len(self.view.table.schema.columns)

    @property
    def sides(self) -> Sequence[Sides]:
        """The partitions in which runs differ."""
        table_id = self.view.table.id
        partitions = sorted(
            {run.partition for run in (*self.before, *self.after)}, key=lambda partition: partition or ""
        )
        every = [
            Sides(
                table_id,
                [run for run in self.before if run.partition == partition],
                [run for run in self.after if run.partition == partition],
            )
            for partition in partitions
        ]
        return [sides for sides in every if sides.apart]


def of_merge(repository: Repository, table: Table, merge_id: str) -> Compared:
    """Return the snapshot that a merge or compaction committed, and the one before it.

    Raise ``NotFound`` for the merge and for a snapshot that has expired, and ``Conflict`` (MERGE_NOT_COMMITTED) for a
    merge that has not committed.
    """
    task = repository.tasks.get(table.id, merge_id)
    if task.state is not TaskState.SUCCEEDED:
        raise _not_committed(task)
    if task.snapshot_id is None:  # there was nothing to fold
        return _compared(repository, table, None, None)
    after = repository.snapshots.find(table.id, task.snapshot_id)
    if after is None:
        raise _expired(repository, table, task)
    return _since_last(repository, table, after)


def of_snapshots(repository: Repository, table: Table, version: str, since: str | None) -> Compared:
    """Return the snapshots of ``version`` and of ``since``, by default the one before ``version``.

    Raise ``NotFound``.
    """
    after = find_snapshot(repository, table, version)
    if since is None:
        return _since_last(repository, table, after)
    return _compared(repository, table, find_snapshot(repository, table, since), after)


def _not_committed(task: CatalogTask) -> Conflict:
    states = {
        TaskState.PENDING: "waits for a worker; repeat the request when its state is succeeded",
        TaskState.RUNNING: "runs; repeat the request when its state is succeeded",
        TaskState.FAILED: "failed and changed nothing; GET …/merges/{id} says why, and the next merge retries it",
        TaskState.CANCELLED: "was cancelled and changed nothing; a later merge takes its batches",
    }
    message = f"the {task.kind} {task.id} {states[task.state]}"
    return Conflict(message, code=ErrorCode.MERGE_NOT_COMMITTED, resource_type=Resource.MERGE, resource_name=task.id)


def _expired(repository: Repository, table: Table, task: CatalogTask) -> NotFound:
    number = str(task.snapshot_id)
    missing = repository.snapshots.not_found(table.id, f"snapshot {number}, which the {task.kind} committed,", number)
    fix = "its changes are known while that is kept: snapshot.time-retained, snapshot.num-retained.min, or a tag"
    return not_found(Resource.SNAPSHOT, number, f"{missing.message}; {fix}")


def _since_last(repository: Repository, table: Table, after: Snapshot) -> Compared:
    """Return the snapshot and the one before it; if the latter has expired, the merge's own runs show its rows."""
    before = repository.snapshots.find(table.id, after.id - 1) if after.id > 1 else None
    if before is not None or after.id == 1:
        return _compared(repository, table, before, after)
    if after.kind is not SnapshotKind.MERGE:
        what = f"snapshot {after.id - 1}, with which snapshot {after.id} is compared unless since= names another,"
        raise repository.snapshots.not_found(table.id, what, str(after.id - 1))
    earlier = tuple(run for run in after.runs if run.changed_at != after.committed_at)
    return _compared(repository, table, replace(after, id=after.id - 1, runs=earlier), after)


def _compared(repository: Repository, table: Table, before: Snapshot | None, after: Snapshot | None) -> Compared:
    """Return both under the schema of the later one, so that an ALTER in between is no change of a row."""
    snapshots = [snapshot for snapshot in (before, after) if snapshot is not None]
    schema_id = max((snapshot.schema_id for snapshot in snapshots), default=table.schema_id)
    shown = repository.tables.under(table, schema_id)
    schemas = {
        n: schema for snapshot in (before, after) for n, schema in schemas_of(repository, shown, snapshot).items()
    }
    view = View(shown, compile_plan(shown.schema), after, schemas)
    runs = [snapshot.runs if snapshot else () for snapshot in (before, after)]
    return Compared(view, before.id if before else None, *runs)


def compare_named(
    database: CatalogDatabase,
    warehouse: Warehouse,
    room: ScanRoom,
    name: tuple[str, str],
    find: Callable[[Repository, Table], Compared],
    columns: Sequence[str] | None = None,
    sample: int = 10,
    integers: Integers | None = None,
    bounds: Bounds = BOUNDS,
) -> Comparison:
    """Return ``compare`` of the snapshots that ``find`` returns for the table ``name`` (database, table), within the
    bounds of ``room``.

    Raise as ``find`` and ``compare`` do, and ``Unavailable`` if too many comparisons run already.
    """
    with room.place() as place:

        def read() -> Comparison:
            with database.reading() as repository:
                compared = find(repository, repository.tables.get(*name))
            place.take_columns(compared.columns_read)
            return compare(warehouse, compared, columns, sample, integers, bounds)

        return read_again(read)


def compare(
    warehouse: Warehouse,
    compared: Compared,
    columns: Sequence[str] | None = None,
    sample: int = 10,
    integers: Integers | None = None,
    bounds: Bounds = BOUNDS,
) -> Comparison:
    """Return the differences of the rows; only those in ``columns``, if given.

    Include up to ``sample`` added, changed and removed rows each, by token.

    Raise ``Invalid`` for columns that the schema does not have, and ``DamagedFile``.
    """
    schema = compared.view.table.schema
    names = dict.fromkeys((*schema.primary_key, *wanted_columns(compared.view, columns)))
    shown = tuple(column for column in schema.columns if column.name in names)
    tally = _Tally(Scan(compared.view, shown, integers=integers_of(schema, integers)), sample)
    source = tally.scan.source(warehouse)
    tokens, every = _planned(warehouse, compared, bounds)
    for sides, touched in every:
        for difference in differences(source, sides, tokens, touched):
            tally.add(difference)
    return tally.comparison(compared, tokens)


def _planned(
    warehouse: Warehouse, compared: Compared, bounds: Bounds
) -> tuple[TokenRange, Sequence[tuple[Sides, Tokens]]]:
    """Return the token range to compare, all if that is within ``bounds``, and the touched keys of each partition."""
    every = compared.sides
    tokens = _part(TokenRange(), bounds.keys, sum(run.rows for sides in every for run in sides.apart))
    touched = [sides.touched(warehouse, tokens) for sides in every]
    rows = sum(
        sides.rows_to_read(warehouse, tokens, touched_tokens)
        for sides, touched_tokens in zip(every, touched, strict=True)
    )
    fewer = _part(tokens, bounds.cells, rows * len(compared.view.table.schema.columns))
    return fewer, [
        (sides, touched_tokens[touched_tokens <= fewer.last])
        for sides, touched_tokens in zip(every, touched, strict=True)
    ]


def _part(tokens: TokenRange, most: int, differing: int) -> TokenRange:
    """Return the share of the tokens, from the first on, that leaves about ``most`` of the ``differing`` rows."""
    if differing <= most:
        return tokens
    return TokenRange(tokens.first, tokens.first + max(1, (tokens.last - tokens.first + 1) * most // differing) - 1)


class _Tally:
    """The counts so far, and up to ``most`` examples each of added, changed and removed rows."""

    def __init__(self, scan: Scan, most: int) -> None:
        self.scan = scan
        keys = scan.view.table.schema.primary_key
        self._most = most
        self._room = MOST_SAMPLE_BYTES
        self._keys = 0
        self._rows = dict.fromkeys(Became, 0)
        self._columns = {column.name: 0 for column in scan.columns if column.name not in keys}
        self._sample: dict[Became, list[RowChange]] = {became: [] for became in Became}

    def add(self, difference: Difference) -> None:
        """Count some neighbouring keys."""
        self._keys += difference.keys
        for name, flags in difference.unlike.items():
            self._columns[name] += int(flags.sum())
        sides = {
            Became.ADDED: (None, difference.added),
            Became.CHANGED: (difference.before, difference.after),
            Became.REMOVED: (difference.removed, None),
        }
        for became, (before, after) in sides.items():
            count = len(difference.removed if after is None else after)
            self._rows[became] += count
            for place in range(min(count, self._most - len(self._sample[became]))):
                differing = (
                    [name for name, flags in difference.unlike.items() if flags[place]]
                    if became is Became.CHANGED
                    else []
                )
                self._take(became, _row_at(before, place), _row_at(after, place), differing)

    def _take(self, became: Became, before: Any, after: Any, differing: Sequence[str]) -> None:
        """Keep a row as an example, unless the answer would exceed its size."""
        size = sum(text_bytes(side) for side in (before, after) if side is not None)
        if size > self._room:
            return
        self._room -= size
        old, new = self._json(before), self._json(after)
        row = old or new or {}
        key = {name: row[name] for name in self.scan.view.table.schema.primary_key}
        self._sample[became].append(RowChange(became, key, old, new, differing))

    def _json(self, row: Any) -> Mapping[str, Any] | None:
        """Return a batch of one row, as a lookup answers it."""
        if row is None:
            return None
        body = b"".join(WRITERS[NDJSON].write(self.scan.columns, [row], self.scan.integers))
        decoded: Mapping[str, Any] = json.loads(body)
        return decoded

    def comparison(self, compared: Compared, tokens: TokenRange) -> Comparison:
        """Return the comparison for all keys, extrapolated from those in ``tokens``."""
        looked_at = tokens.last - tokens.first + 1

        def of_all(count: int) -> int:
            return count * _TOKENS // looked_at

        rows = {became: of_all(count) for became, count in self._rows.items()}
        keys = of_all(self._keys)
        return Comparison(
            since=compared.since,
            snapshot_id=compared.view.snapshot_id,
            exact=looked_at == _TOKENS,
            share=looked_at / _TOKENS,
            keys=keys,
            added=rows[Became.ADDED],
            changed=rows[Became.CHANGED],
            removed=rows[Became.REMOVED],
            unchanged=max(0, keys - sum(rows.values())),
            columns=[ColumnChanges(name, of_all(count)) for name, count in self._columns.items()],
            sample=[change for became in Became for change in self._sample[became]],
        )


def _row_at(rows: Any, place: int) -> Any:
    return None if rows is None else rows.slice(place, 1)
