"""What a long log costs: folding one key's states in Python, showing a settled one, and compacting it on Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.connect.session import SparkSession

from app.core.plan.fold import combine_all, compacted, finish, fold
from app.core.plan.jobs import CompactionJob, FileSizes, MergeJob, StoredFile, StoredRun
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, Record, RowKind, arrival
from app.core.table.schema import Column, TableSchema
from app.core.types.parser import parse_type
from app.storage.arrow import staging_schema
from bench.figures import Figure, Ratio, interleaved, seconds
from bench.site import BenchSite
from bench.sizes import Sizes
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge

LENGTHS = (1_000, 10_000, 50_000)
ON_SPARK = (10_000, 50_000)
RUNS = 3
FUNCTIONS: Mapping[str, tuple[str, Mapping[str, str], Callable[[int], Any]]] = {
    "listagg": ("STRING", {"ignore-retract": "true"}, lambda i: f"t{i}"),
    "collect": ("ARRAY<INT>", {"distinct": "true"}, lambda i: [i % 5_000, i]),
    "merge_map": ("MAP<STRING, INT>", {}, lambda i: [(f"k{i % 5_000}", i)]),
    "nested_update": ("ARRAY<ROW<id INT, v STRING>>", {"nested-key": "id"}, lambda i: [{"id": i % 5_000, "v": "x"}]),
    "product": ("DOUBLE", {}, lambda _: 1.0),
}
_REMOVING_GROUP = {
    "merge-engine": "partial-update",
    "fields.s.sequence-group": "v",
    "fields.v.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "s",
}
_REMOVING_BY_SEQUENCE = {
    "merge-engine": "partial-update",
    "sequence.field": "s",
    "partial-update.remove-record-on-delete": "true",
}


@dataclass(frozen=True)
class LoggedTable:
    """A table of key ``k``, sequence ``s`` and column ``v``, and the value of ``v`` in each record."""

    plan: MergePlan
    value: Callable[[int], Any]

    def record(self, number: int) -> Record:
        """Record ``number`` of the one key; now and then a -D, where one removes the row."""
        values = {"k": 7, "s": number * 7_919 % 100_003, "v": self.value(number)}
        return Record(RowKind.INSERT, values, arrival(1 + number % RUNS, number))


def logged_tables() -> Mapping[str, LoggedTable]:
    """One table of every kind that keeps logs."""
    removing = {"removal group": _REMOVING_GROUP, "removal by sequence": _REMOVING_BY_SEQUENCE}
    tables = {name: LoggedTable(_plan("INT", options), lambda i: i % 9) for name, options in removing.items()}
    for name, (kind, own, value) in FUNCTIONS.items():
        options = {f"fields.v.{key}": text for key, text in {"aggregate-function": name, **own}.items()}
        plan = _plan(kind, {"merge-engine": "aggregation", "sequence.field": "s", **options})
        tables[f"{name} by sequence"] = LoggedTable(plan, value)
    return tables


def _plan(kind: str, options: Mapping[str, str]) -> MergePlan:
    types = {"k": "INT NOT NULL", "s": "INT", "v": kind}
    columns = tuple(Column(i, name, parse_type(text)) for i, (name, text) in enumerate(types.items()))
    return compile_plan(TableSchema(columns, ("k",), (), options))


def measure_logs(site: BenchSite, sizes: Sizes) -> Figure:
    """Seconds of folding, of showing and of compacting; a step is called by its table, what it does, its entries."""
    steps: dict[str, Callable[[], float]] = {}
    ratios = []
    with tempfile.TemporaryDirectory() as folder, site.session() as spark:
        for name, table in logged_tables().items():
            for length in LENGTHS:
                states = _states(table, length)
                steps[f"{name}, fold, {length}"] = partial(seconds, partial(combine_all, table.plan, states))
                state = compacted(table.plan, combine_all(table.plan, states) or {}, 0, oldest=True) or {}
                steps[f"{name}, show, {length}"] = partial(seconds, partial(finish, table.plan, state))
            for length in ON_SPARK:
                job = _compaction(spark, table, Path(folder) / f"{name} {length}".replace(" ", "-"), length)
                steps[f"{name}, Spark, {length}"] = partial(seconds, partial(run_compaction, spark, job))
            for act, lengths in (("fold", LENGTHS), ("Spark", ON_SPARK)):
                ratios.append(Ratio(f"{name}, {act}, {lengths[-1]}", f"{name}, {act}, {lengths[-2]}", 5.0))
        timings = interleaved(steps, sizes.rounds, warm_ups=1)
    return Figure(
        "Long logs",
        f"One key with so many records in {RUNS} runs: the runs' states folded into one in Python, the row of the "
        "settled state shown, the runs compacted on Spark. Five times the entries should take five times as long at "
        "most; a fold of 50,000 entries in 0.1 s is 2 µs an entry.",
        timings,
        ratios,
    )


def _pieces(length: int) -> list[range]:
    return [range(length * i // RUNS, length * (i + 1) // RUNS) for i in range(RUNS)]


def _states(table: LoggedTable, length: int) -> list[Mapping[str, Any]]:
    folded = (fold(table.plan, map(table.record, piece)) for piece in _pieces(length))
    return [state for state in folded if state is not None]


def _compaction(spark: SparkSession, table: LoggedTable, folder: Path, length: int) -> CompactionJob:
    """The compaction of runs that were merged of one batch each."""
    folder.mkdir()
    runs = [_merged(spark, table, folder, number, piece) for number, piece in enumerate(_pieces(length))]
    sizes = FileSizes(RUNS, RUNS, 1024**2)
    return CompactionJob(table.plan, tuple(runs), sizes, (folder / "compacted").as_uri(), 0, oldest=True)


def _merged(spark: SparkSession, table: LoggedTable, folder: Path, number: int, piece: range) -> StoredRun:
    rows = [
        {**table.record(i).values, KIND_COLUMN: int(RowKind.INSERT), POSITION_COLUMN: place}
        for place, i in enumerate(piece)
    ]
    batch, output = folder / f"batch-{number}.parquet", folder / f"run-{number}"
    pq.write_table(pa.Table.from_pylist(rows, schema=staging_schema(table.plan.schema)), batch)
    run_merge(spark, MergeJob(table.plan, {batch.as_uri(): number + 1}, FileSizes(1, 1, 1024**2), output.as_uri(), 0))
    everything = (-(2**63), 2**63 - 1)
    return StoredRun(table.plan, tuple(StoredFile(p.as_uri(), *everything) for p in output.glob("*.parquet")))
