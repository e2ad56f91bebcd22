"""What a scan costs: no Spark, no HTTP; runs of 12 columns written directly, read as clients get them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from app.core.plan.merge_plan import compile_plan
from app.core.table.history import Run, Snapshot, Table
from app.core.table.schema import TableSchema
from app.services.scans import WRITERS, read_scan, written
from app.services.views import View
from app.storage.layout import Warehouse, run_folder
from app.storage.runs import read_run
from bench.figures import table
from bench.images import COLUMNS, ROWS, state_rows
from bench.sizes import Sizes

SHARE = 0.05  # of the keys are in a second run too


def measure_scans(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Rows a second by media type, of one run and with some of the keys in two."""
    rows = int(ROWS * sizes.scale)
    with TemporaryDirectory() as folder:
        warehouse = Warehouse(str(Path(folder) / "warehouse"))
        fields = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
        schema = TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})
        runs = [_run(warehouse, schema, "r0", rows), _run(warehouse, schema, "r1", int(rows * SHARE))]
        head = ("scan", "rows/s, median", "CPU s a million rows")
        lines = [
            _row(warehouse, _view(schema, runs[:count]), kind, f"{kind}, {name}", rows, sizes.rounds)
            for count, name in ((1, "one run"), (2, f"{SHARE:.0%} of the keys in two runs"))
            for kind in WRITERS
        ]
        yield ["### Scans", "", f"{rows:,} rows of {len(COLUMNS)} columns.", "", *table(head, lines)]


def _run(warehouse: Warehouse, schema: TableSchema, name: str, rows: int) -> Run:
    folder = Path(warehouse.path(*run_folder("t", name)))
    folder.mkdir(parents=True)
    pq.write_table(state_rows(compile_plan(schema), rows, rows), folder / "part-0.parquet", row_group_size=100_000)
    return read_run(warehouse, "t", name, 0)


def _view(schema: TableSchema, runs: Sequence[Run]) -> View:
    now: Any = None
    shown = Table("t", "d", "t", 0, schema, 1, now, now)
    return View(shown, compile_plan(schema), Snapshot(1, "t", tuple(runs), None, now), {0: schema})


def _row(warehouse: Warehouse, view: View, kind: str, name: str, rows: int, rounds: int) -> Sequence[str]:
    taken, cpu = [], []
    for _ in range(rounds):
        began, busy = time.perf_counter(), time.process_time()
        assert sum(map(len, written(warehouse, read_scan(view, None, ()), kind))) > rows
        taken.append(time.perf_counter() - began)
        cpu.append(time.process_time() - busy)
    return name, f"{rows / median(taken):,.0f}", f"{median(cpu) * 1e6 / rows:.2f}"
