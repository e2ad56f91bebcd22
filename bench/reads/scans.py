"""What a scan costs: no Spark, no HTTP; runs of 12 columns written directly, read as clients get them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run, Snapshot, Table
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.services.rows.scans import WRITERS, read_scan, written
from app.services.rows.views import View
from bench.figures import table
from bench.reads.images import ROWS
from bench.reads.orders import BIGINT, COLUMNS, write_run
from bench.sizes import Sizes

SHARE = 0.05  # of the keys are in a second run too


def measure_scans(sizes: Sizes) -> Iterator[Sequence[str]]:
    """Rows a second by media type, of one run and with some of the keys in two."""
    rows = int(ROWS * sizes.scale)
    with TemporaryDirectory() as folder:
        warehouse = Warehouse(str(Path(folder) / "warehouse"))
        schema = BIGINT.schema()
        sizes_of_runs = {"r0": rows, "r1": int(rows * SHARE)}
        runs = [write_run(warehouse, "t", name, BIGINT, size, size) for name, size in sizes_of_runs.items()]
        head = ("scan", "rows/s, median", "CPU s a million rows")
        lines = [
            _row(warehouse, _view(schema, runs[:count]), kind, f"{kind}, {name}", rows, sizes.rounds)
            for count, name in ((1, "one run"), (2, f"{SHARE:.0%} of the keys in two runs"))
            for kind in WRITERS
        ]
        yield ["### Scans", "", f"{rows:,} rows of {len(COLUMNS)} columns.", "", *table(head, lines)]


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
