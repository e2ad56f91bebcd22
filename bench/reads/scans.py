"""What a scan costs: no Spark, no HTTP; runs of 12 columns written directly, read as clients get them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run, Snapshot, Table
from app.core.table.named_columns import ALL_NAMED, named_words
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, TOKEN_COLUMN, RowKind
from app.core.table.schema import TableSchema
from app.files.arrow import staging_schema
from app.files.layout import Warehouse
from app.files.named_files import files_of_run, opened_parquet
from app.services.rows.scans import WRITERS, read_scan, written
from app.services.rows.views import View
from app.storage.staging.staged_index import StagedBatch, StagedIndex
from bench.figures import table
from bench.reads.images import ROWS
from bench.reads.orders import BIGINT, COLUMNS, write_run
from bench.sizes import Sizes

SHARE = 0.05  # of the keys are in a second run, or staged
NOTHING_STAGED = StagedIndex()


def measure_scans(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Rows a second by media type: of one run, and with some of the keys in a second run or staged."""
    rows = int(ROWS * sizes.scale)
    with TemporaryDirectory() as folder:
        warehouse = Warehouse(str(Path(folder) / "warehouse"))
        schema = BIGINT.schema()
        sizes_of_runs = {"r0": rows, "r1": int(rows * SHARE)}
        runs = [write_run(warehouse, "t", name, BIGINT, size, size) for name, size in sizes_of_runs.items()]
        head = ("scan", "rows/s, median", "CPU s a million rows")
        views = {
            "one run": _view(schema, runs[:1]),
            f"{SHARE:.0%} of the keys in two runs": _view(schema, runs),
            f"{SHARE:.0%} of the keys staged": _view(schema, runs[:1], _staged(warehouse, schema, runs[1])),
        }
        lines = [
            _row(warehouse, view, kind, f"{kind}, {name}", rows, sizes.rounds)
            for name, view in views.items()
            for kind in WRITERS
        ]
        yield ["### Scans", "", f"{rows:,} rows of {len(COLUMNS)} columns.", "", *table(head, lines)]


def _view(schema: TableSchema, runs: Sequence[Run], index: StagedIndex = NOTHING_STAGED) -> View:
    now: Any = None
    shown = Table("t", "d", "t", 0, schema, 1, now, now)
    return View(shown, compile_plan(schema), Snapshot(1, "t", tuple(runs), None, now), {0: schema}, index=index)


def _staged(warehouse: Warehouse, schema: TableSchema, run: Run) -> StagedIndex:
    """Return a staged batch of the rows of a run."""
    [file] = files_of_run("t", run)
    with opened_parquet(warehouse, file) as parquet:
        rows = parquet.read()
    count = len(rows)
    columns = {POSITION_COLUMN: pa.array(range(count)), KIND_COLUMN: pa.repeat(int(RowKind.INSERT), count)}
    columns |= dict.fromkeys(named_words(schema), pa.repeat(ALL_NAMED, count))
    of = staging_schema(schema)
    stored = {name: rows[name] for name in schema.by_name}
    records = pa.table({**columns, **stored}).select(of.names).cast(of)
    batch = StagedBatch(1, schema, records, rows[TOKEN_COLUMN].to_numpy())
    return StagedIndex().extended(batch)


def _row(warehouse: Warehouse, view: View, kind: str, name: str, rows: int, rounds: int) -> Sequence[str]:
    taken, cpu = [], []
    for _ in range(rounds):
        began, busy = time.perf_counter(), time.process_time()
        assert sum(map(len, written(warehouse, read_scan(view, None, ()), kind))) > rows
        taken.append(time.perf_counter() - began)
        cpu.append(time.process_time() - busy)
    return name, f"{rows / median(taken):,.0f}", f"{median(cpu) * 1e6 / rows:.2f}"
