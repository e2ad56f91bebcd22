"""What images cost to make and what lookups cost with them: no Spark, no HTTP; a run of 12 columns written directly."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.table.history import Run, Snapshot, Table
from app.core.table.keys import Key, keys_from_json, tokens_of
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.services.lookups import View, find
from app.services.many_lookups import AskedKeys, found_as_arrow, found_as_json
from app.storage.arrow import arrow_field
from app.storage.images import Images
from app.storage.images.builder import Builder
from app.storage.layout import Warehouse, run_folder
from app.storage.runs import read_run
from bench.figures import table
from bench.sizes import Sizes

ROWS = 1_000_000
LOOKUPS = 20_000
KEYS_AT_ONCE = 1000
COLUMNS = {
    "id": "BIGINT",
    "customer": "BIGINT",
    "quantity": "INT",
    "paid": "BOOLEAN",
    "price": "DECIMAL(10, 2)",
    "weight": "DOUBLE",
    "status": "STRING",
    "city": "STRING",
    "note": "STRING",
    "ordered": "TIMESTAMP(3)",
    "shipped": "TIMESTAMP(3)",
    "day": "DATE",
}


def measure_images(sizes: Sizes) -> Iterator[Sequence[str]]:
    """The cost of making images, then that of lookups in one run and in three."""
    rows = int(ROWS * sizes.scale)
    with TemporaryDirectory() as folder:
        site = _Site(Path(folder), rows)
        yield [*_heading(rows), *table(("making, a million rows", "CPU s", "seconds", "MB"), list(site.making()))]
        for runs in (1, 3):
            head = (f"a key in {runs} of {runs} runs", "CPU µs, median", "least", "a second")
            yield list(table(head, list(site.lookups(runs, sizes.rounds))))


def _heading(rows: int) -> list[str]:
    return ["### Images", "", f"{rows:,} rows of {len(COLUMNS)} columns in each run; keys drawn at random.", ""]


class _Site:
    """Three runs of the same keys, and images of them."""

    def __init__(self, folder: Path, rows: int) -> None:
        fields = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
        self.schema = TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})
        self.plan = compile_plan(self.schema)
        self.warehouse = Warehouse(str(folder / "warehouse"))
        self.images = Images(folder / "images", self.warehouse)
        self.images.asking.builds = False
        self.rows = rows
        self.runs = [self._run(f"r{number}", number) for number in range(3)]

    def _run(self, name: str, seed: int) -> Run:
        folder = Path(self.warehouse.path(*run_folder("t", name)))
        folder.mkdir(parents=True)
        pq.write_table(state_rows(self.plan, self.rows, seed), folder / "part-0.parquet", row_group_size=100_000)
        return read_run(self.warehouse, "t", name, 0)

    def making(self) -> Iterator[Sequence[str]]:
        """Of answers, then of state rows: CPU, time and bytes."""
        builder = Builder(self.images.folder, self.warehouse, 2**40)
        for run in self.runs:
            self.images.want("t", run, self.schema, self.plan)
        yield self._made("answers", builder)
        for run in self.runs:
            self.images.find("t", run, run.files[0].min_token, ("id",), (-1,))
        yield self._made("state rows", builder)

    def _made(self, name: str, builder: Builder) -> Sequence[str]:
        cpu, began, before = time.process_time(), time.perf_counter(), _bytes_below(self.images.folder)
        while builder.work():
            pass
        cpu, taken = time.process_time() - cpu, time.perf_counter() - began
        made, million = _bytes_below(self.images.folder) - before, 1e6 / (len(self.runs) * self.rows)
        return name, f"{cpu * million:.2f}", f"{taken * million:.2f}", f"{made * million / 1e6:.0f}"

    def lookups(self, runs: int, rounds: int) -> Iterator[Sequence[str]]:
        """Single lookups, and batches of keys, from a view that is there."""
        view = self._view(runs)
        single = [(random.randrange(self.rows),) for _ in range(LOOKUPS if runs == 1 else LOOKUPS // 20)]
        missing = [(-1 - key,) for (key,) in single]
        yield _row("one key", rounds, len(single), lambda: self._look_up(view, single))
        yield _row("one key that is missing", rounds, len(missing), lambda: self._look_up(view, missing))
        bodies = [
            json.dumps({"keys": [{"id": key} for (key,) in single[start : start + KEYS_AT_ONCE]]})
            for start in range(0, len(single), KEYS_AT_ONCE)
        ]
        yield self._at_once("JSON", view, bodies, found_as_json, rounds)
        yield self._at_once("Arrow", view, bodies[:2], found_as_arrow, rounds)

    def _at_once(
        self, name: str, view: View, bodies: Sequence[str], answer: Callable[[Images, AskedKeys], bytes], rounds: int
    ) -> Sequence[str]:
        count = sum(len(json.loads(body)["keys"]) for body in bodies)
        return _row(f"1,000 keys at once, {name}, a row", rounds, count, lambda: self._get(view, bodies, answer))

    def _view(self, runs: int) -> View:
        now: Any = None
        shown = Table("t", "d", "t", 0, self.schema, 1, now, now)
        snapshot = Snapshot(1, "t", tuple(self.runs[:runs]), None, now)
        return View(shown, self.plan, snapshot, {0: self.schema})

    def _look_up(self, view: View, keys: Sequence[Key]) -> None:
        for key in keys:
            find(view, self.images, key, view.columns)

    def _get(self, view: View, bodies: Sequence[str], answer: Callable[[Images, AskedKeys], bytes]) -> None:
        for body in bodies:
            keys = keys_from_json(self.schema, json.loads(body)["keys"], "/keys")
            answer(self.images, AskedKeys(view, keys, view.columns))


def _row(name: str, rounds: int, count: int, act: Callable[[], None]) -> Sequence[str]:
    act()
    taken = []
    for _ in range(max(5, rounds)):
        began = time.process_time()
        act()
        taken.append((time.process_time() - began) / count)
    return name, f"{median(taken) * 1e6:.1f}", f"{min(taken) * 1e6:.1f}", f"{1 / median(taken):,.0f}"


def _bytes_below(folder: Path) -> int:
    return sum(os.path.getsize(path) for path in folder.rglob("*.image"))


def state_rows(plan: MergePlan, rows: int, seed: int) -> pa.Table:
    """State rows of deduplicate, sorted by token."""
    draw = np.random.default_rng(seed)
    ids = np.arange(rows)
    tokens = np.array(tokens_of(plan.schema, [(one,) for one in ids.tolist()]), dtype=np.int64)
    words = np.array([f"word {number} of many" for number in range(1000)])
    moments = draw.integers(1_600_000_000_000, 1_700_000_000_000, (2, rows)) * 1000
    values = {
        "id": ids,
        "customer": draw.integers(0, 10**9, rows),
        "quantity": draw.integers(0, 100, rows).astype(np.int32),
        "paid": draw.random(rows) > 0.5,
        "price": pa.array(draw.integers(0, 10**7, rows)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 2)),
        "weight": np.round(draw.random(rows) * 1000, 3),
        "status": words[draw.integers(0, 5, rows)],
        "city": words[draw.integers(0, 1000, rows)],
        "note": np.char.add(words[draw.integers(0, 1000, rows)], " and what was noted with it"),
        "ordered": pa.array(moments[0]).view(pa.timestamp("us")),
        "shipped": pa.array(moments[1]).view(pa.timestamp("us")),
        "day": pa.array(draw.integers(18_000, 20_000, rows).astype(np.int32)).view(pa.date32()),
    }
    fields = [arrow_field(column) for column in plan.schema.columns]
    arrays = [pa.array(values[field.name]).cast(field.type) for field in fields]
    columns = {TOKEN_COLUMN: pa.array(tokens)} | {
        field.name: array for field, array in zip(fields, arrays, strict=True)
    }
    columns["_kf_live"] = pa.array(np.ones(rows, dtype=bool))
    return pa.table(columns).take(pa.array(np.argsort(tokens, kind="stable")))
