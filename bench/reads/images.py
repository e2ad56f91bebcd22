"""What images cost to make and what lookups cost with them: no Spark, no HTTP; a run of 12 columns written directly."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Snapshot, Table
from app.core.table.keys import Key, keys_from_json
from app.files.layout import Warehouse
from app.services.rows.lookups import find
from app.services.rows.many_lookups import KeysRequest, rows_as_arrow, rows_as_json
from app.services.rows.views import View
from app.storage.images import Images
from app.storage.images.builder import Builder
from bench.figures import table
from bench.reads.orders import BIGINT, COLUMNS, write_run
from bench.sizes import Sizes

ROWS = 1_000_000
LOOKUPS = 20_000
KEYS_AT_ONCE = 1000

ELSEWHERE = {
    "deduplicate with a sequence field": {"sequence.field": "ordered"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
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
        head = ("one key in 3 of 3 runs of other tables", "CPU µs, median", "least", "a second")
        yield list(table(head, [_elsewhere(Path(folder), name, rows, sizes.rounds) for name in ELSEWHERE]))


def _elsewhere(folder: Path, name: str, rows: int, rounds: int) -> Sequence[str]:
    site = _Site(folder / name, max(1, rows // 10), ELSEWHERE[name])
    list(site.making())
    return site.single(name, 3, rounds)


def _heading(rows: int) -> list[str]:
    return ["### Images", "", f"{rows:,} rows of {len(COLUMNS)} columns in each run; keys drawn at random.", ""]


class _Site:
    """Three runs of the same keys, and images of them."""

    def __init__(self, folder: Path, rows: int, options: Mapping[str, str] | None = None) -> None:
        self.schema = BIGINT.schema(options)
        self.plan = compile_plan(self.schema)
        self.warehouse = Warehouse(str(folder / "warehouse"))
        self.images = Images(folder / "images", self.warehouse)
        self.images.asking.builds = False
        self.rows = rows
        self.runs = [write_run(self.warehouse, "t", f"r{seed}", BIGINT, rows, seed) for seed in range(3)]

    def making(self) -> Iterator[Sequence[str]]:
        """Of answers, then of state rows: CPU, time and bytes."""
        builder = Builder(self.images.folder, self.warehouse, 2**40)
        for run in self.runs:
            self.images.want("t", run, self.schema, self.plan)
        yield self._made("answers", builder)
        for run in self.runs:
            self.images.want_states("t", run)
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
        yield self._at_once("JSON", view, bodies, rows_as_json, rounds)
        yield self._at_once("Arrow", view, bodies[:2], rows_as_arrow, rounds)

    def single(self, name: str, runs: int, rounds: int) -> Sequence[str]:
        """Single lookups alone."""
        view, keys = self._view(runs), [(random.randrange(self.rows),) for _ in range(LOOKUPS // 20)]
        return _row(name, rounds, len(keys), lambda: self._look_up(view, keys))

    def _at_once(
        self, name: str, view: View, bodies: Sequence[str], answer: Callable[[Images, KeysRequest], bytes], rounds: int
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

    def _get(self, view: View, bodies: Sequence[str], answer: Callable[[Images, KeysRequest], bytes]) -> None:
        for body in bodies:
            keys = keys_from_json(self.schema, json.loads(body)["keys"], "/keys")
            answer(self.images, KeysRequest(view, keys, view.columns))


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
