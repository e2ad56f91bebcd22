"""Merges without Spark: folded by ``app.core.plan.fold``, written as Parquet the way Spark's jobs write it."""
# ruff: noqa: ARG002  # a double takes whatever the protocol passes

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.errors import Cancelled
from app.core.plan.evolution import combined_row
from app.core.plan.fold import compacted, fold, visible_row
from app.core.plan.jobs import ChangesJob, CompactionJob, Job, MergeJob, OverflowJob, Progress, Result, StoredRun
from app.core.plan.merge_plan import MergePlan
from app.core.table.keys import token_of
from app.core.table.named_columns import names_in
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, TOKEN_COLUMN, Record, RowKind, arrival
from app.core.table.schema import TableSchema
from app.storage.arrow import arrow_field, field_id, staging_schema
from app.storage.run_files import run_schema

StateRow = Mapping[str, Any]
# Of ``PythonExecutor``, by name: a double of one test overrides what it is about.
METHODS: Mapping[type[Job], str] = {
    MergeJob: "merge",
    CompactionJob: "compact",
    ChangesJob: "write_changes",
    OverflowJob: "find_overflow",
}


def path_of(uri: str) -> Path:
    """The local path that a ``file:`` URI means."""
    return Path(uri.removeprefix("file://"))


def write_run(
    folder: Path,
    plan: MergePlan,
    states: Iterable[StateRow],
    *,
    files: int = 1,
    rows_per_group: int = 100,
    token: Callable[[tuple[Any, ...]], int] | None = None,
) -> None:
    """Writes a run's files, sorted by token, of disjoint token ranges; ``token`` replaces the real token of a key."""
    of_key = token or (lambda key: token_of(plan.schema, key))
    rows = [{**state, TOKEN_COLUMN: of_key(tuple(state[name] for name in plan.schema.primary_key))} for state in states]
    rows.sort(key=lambda row: row[TOKEN_COLUMN])
    folder.mkdir(parents=True, exist_ok=True)
    size = max(1, -(-len(rows) // files))
    for number in range(files):
        part = pa.Table.from_pylist(rows[number * size : (number + 1) * size], schema=run_schema(plan))
        pq.write_table(part, folder / f"part-{number:05}.parquet", compression="zstd", row_group_size=rows_per_group)


def write_runs(folder: Path, plan: MergePlan, states: Sequence[StateRow]) -> None:
    """Writes one run, or one in each partition that the rows are in."""
    names = plan.schema.partition_keys
    if not names:
        write_run(folder, plan, states)
        return
    found: dict[tuple[Any, ...], list[StateRow]] = defaultdict(list)
    for state in states:
        found[tuple(state[name] for name in names)].append(state)
    for number, rows in enumerate(found.values()):
        write_run(folder / f"_kf_partition={number:016x}", plan, rows)


def write_changelog(folder: Path, plan: MergePlan, changes: Sequence[tuple[RowKind, Mapping[str, Any]]]) -> None:
    """Writes changes by token, those of a key in the order given."""
    columns = [arrow_field(column) for column in plan.schema.columns]
    keys = plan.schema.primary_key
    rows = [
        {
            TOKEN_COLUMN: token_of(plan.schema, tuple(values[name] for name in keys)),
            KIND_COLUMN: int(kind),
            **{field.name: values[field.name] for field in columns},
        }
        for kind, values in changes
    ]
    rows.sort(key=lambda row: row[TOKEN_COLUMN])
    folder.mkdir(parents=True)
    own = [pa.field(TOKEN_COLUMN, pa.int64()), pa.field(KIND_COLUMN, pa.int8())]
    table = pa.Table.from_pylist(rows, schema=pa.schema([*own, *columns]))
    pq.write_table(table, folder / "part-00000.parquet", row_group_size=3)


def _merge_order(plan: MergePlan) -> Callable[[Record], tuple[Any, ...]]:
    return lambda record: (*plan.order.rank(record.values, record.kind.add), record.arrival)


def _row(plan: MergePlan, state: StateRow | None) -> StateRow | None:
    return None if state is None else visible_row(plan, state)


def _change(job: ChangesJob, before: StateRow | None, after: StateRow | None) -> list[tuple[RowKind, StateRow]]:
    """The table of merge-semantics §8.3."""
    if before is None:
        return [] if after is None else [(RowKind.INSERT, after)]
    if after is None:
        return [(RowKind.DELETE, before)]
    same = all(before[name] == after[name] for name in before if name not in job.ignored_fields)
    return [] if job.row_deduplicate and same else [(RowKind.UPDATE_BEFORE, before), (RowKind.UPDATE_AFTER, after)]


def _staged(path: Path, schema: TableSchema) -> Iterator[dict[str, Any]]:
    """The records of a staging file under ``schema``: columns are found by id, whatever they were called."""
    table = pq.read_table(path)
    places = {_identity(field): place for place, field in enumerate(table.schema)}
    wanted = staging_schema(schema)
    columns = [places.get(_identity(field)) for field in wanted]
    arrays = [pa.nulls(len(table), f.type) if p is None else table[p] for p, f in zip(columns, wanted, strict=True)]
    yield from pa.table(arrays, schema=wanted).to_pylist()


def _identity(field: pa.Field) -> int | str:
    number = field_id(field)
    return str(field.name) if number is None else number


_NAN = float("nan")


def _key_of(plan: MergePlan, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a row; NaN is one and the same object, so that dicts find it as Spark's grouping does."""
    values = (row[name] for name in plan.schema.primary_key)
    return tuple(_NAN if value != value else value for value in values)


class PythonExecutor:
    """The real meaning of merges, in this process; counts how often it was asked, and for merges of distinct keys."""

    def __init__(self) -> None:
        self.merges = 0
        self.lifted = 0
        self.compactions = 0

    def ready(self) -> bool:
        return True

    def warm_up(self) -> None:
        return

    def run(self, tag: str, job: Job, report: Progress) -> Result:
        result: Result = getattr(self, METHODS[type(job)])(tag, job, report)
        return result

    def merge(self, tag: str, job: MergeJob, on_progress: Progress) -> None:
        self.merges += 1
        plan = job.plan
        by_key: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
        for uri, number in job.batches.items():
            for row in _staged(path_of(uri), plan.schema):
                kind, position = RowKind(row.pop(KIND_COLUMN)), row.pop(POSITION_COLUMN)
                key = _key_of(plan, row)
                values = {column.name: row[column.name] for column in plan.schema.columns}
                by_key[key].append(Record(kind, values, arrival(number, position), names_in(plan.schema, row)))
        on_progress(0.5, {"tasks": 2, "finishedTasks": 1})
        ordered = [sorted(of_key, key=lambda record: record.arrival) for of_key in by_key.values()]
        self.lifted += job.distinct_keys
        assert not job.distinct_keys or all(len(of_key) == 1 for of_key in ordered), "each is folded by itself"
        states = [fold(plan, of_key, job.now) for of_key in ordered]
        write_runs(path_of(job.output), plan, [state for state in states if state is not None])
        if job.input_changelog is not None:
            rank = _merge_order(plan)
            kinds = [(record.kind, record.values) for of_key in ordered for record in sorted(of_key, key=rank)]
            write_changelog(path_of(job.input_changelog), plan, kinds)

    def compact(self, tag: str, job: CompactionJob, on_progress: Progress) -> None:
        self.compactions += 1
        combined = [state for state in self._combined(job.plan, job.runs).values() if state is not None]
        kept = [compacted(job.plan, state, job.now, oldest=job.oldest) for state in combined]
        write_runs(path_of(job.output), job.plan, [state for state in kept if state is not None])

    def write_changes(self, tag: str, job: ChangesJob, on_progress: Progress) -> None:
        newer = self._combined(job.plan, job.newer)
        before = self._combined(job.plan, job.older)
        after = self._combined(job.plan, (*job.older, *job.newer))
        changes = [
            change
            for key in newer
            for change in _change(job, _row(job.plan, before.get(key)), _row(job.plan, after[key]))
        ]
        write_changelog(path_of(job.output), job.plan, changes)

    def find_overflow(self, tag: str, job: OverflowJob, on_progress: Progress) -> Result:
        plan, runs = job.plan, job.runs
        combined = self._combined(plan, runs)
        for key in self._combined(plan, runs[-1:]):
            state = combined[key] or {}
            if any(state.get(bounds.carry) is not None for bounds in plan.totals):
                return state
        return None

    def cancel(self, tag: str) -> None:
        return

    def _combined(self, plan: MergePlan, runs: Sequence[StoredRun]) -> dict[tuple[Any, ...], StateRow | None]:
        by_key: dict[tuple[Any, ...], list[tuple[MergePlan, StateRow]]] = defaultdict(list)
        for run in runs:
            schema = run_schema(run.plan)
            for row in (
                row for file in run.files for row in pq.ParquetFile(path_of(file.uri)).read().cast(schema).to_pylist()
            ):
                row.pop(TOKEN_COLUMN)
                by_key[_key_of(run.plan, row)].append((run.plan, row))
        return {key: combined_row(plan, states) for key, states in by_key.items()}


class BrokenExecutor(PythonExecutor):
    """Fails every merge, and every compaction, with ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def merge(self, *args: Any) -> None:
        self.merges += 1
        raise self.error

    def compact(self, *args: Any) -> None:
        self.compactions += 1
        raise self.error


class InterruptedExecutor(PythonExecutor):
    """Calls ``meanwhile`` once, after the files of the first merge (or compaction) are written."""

    def __init__(self, meanwhile: Callable[[], object], *, in_compaction: bool = False) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = meanwhile
        self.in_compaction = in_compaction

    def _interrupt(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def merge(self, *args: Any) -> None:
        super().merge(*args)
        if not self.in_compaction:
            self._interrupt()

    def compact(self, *args: Any) -> None:
        super().compact(*args)
        if self.in_compaction:
            self._interrupt()


class PatientExecutor(PythonExecutor):
    """Works until it is cancelled; ``started`` tells that it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.cancelled: set[str] = set()
        self._stop = threading.Event()

    def merge(self, tag: str, *args: Any) -> None:
        self.merges += 1
        self.started.set()
        if not self._stop.wait(60):
            raise AssertionError("nobody cancelled the job")
        assert tag in self.cancelled
        raise Cancelled(tag)

    def cancel(self, tag: str) -> None:
        self.cancelled.add(tag)
        self._stop.set()


class GatedExecutor(PythonExecutor):
    """Holds the merges of the tables ``held`` (by id) until ``gate`` is set or somebody cancels them; fails those of
    ``failing``.
    """

    def __init__(self, held: Iterable[str] = (), failing: Iterable[str] = ()) -> None:
        super().__init__()
        self.held, self.failing = set(held), set(failing)
        self.gate = threading.Event()
        self.begun: list[str] = []  # table ids, in order
        self.running: list[str] = []
        self.most = 0
        self._cancelled: set[str] = set()
        self._lock = threading.Lock()

    def merge(self, tag: str, job: MergeJob, on_progress: Progress) -> None:
        table = path_of(job.output).parts[-3]
        with self._lock:
            self.begun.append(table)
            self.running.append(table)
            self.most = max(self.most, len(self.running))
        try:
            while table in self.held and not self.gate.wait(0.01):
                if tag in self._cancelled:
                    raise Cancelled(tag)
            if table in self.failing:
                raise RuntimeError("no luck")
            super().merge(tag, job, on_progress)
        finally:
            with self._lock:
                self.running.remove(table)

    def cancel(self, tag: str) -> None:
        self._cancelled.add(tag)


class Killed(BaseException):
    """Ends a worker on the spot, as kill -9 would: no ``except Exception`` of the service sees it."""


def die() -> None:
    raise Killed
