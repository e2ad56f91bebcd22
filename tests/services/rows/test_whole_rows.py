"""A key in several runs is answered with the bytes that its combined state rows come to, whether one row wins whole or
several are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.fold import fold
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import Run, Snapshot, Table
from app.core.table.keys import Key
from app.core.table.records import KINDS_BY_TEXT, Record
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse, run_folder
from app.services.rows.lookups import find, imaged_row
from app.services.rows.many_lookups import KeysRequest, rows_as_json
from app.services.rows.views import View
from app.storage.images import Images
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table, rewritten, widened_table
from tests.oracle import Change
from tests.services.builders import schema
from tests.services.one_catalog import catalog_kind
from tests.storage.images.imaged import build, remove_parquet
from tests.written import read_run, write_run

__all__ = ["catalog_kind"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Site:
    """A table's runs on disk, with images and without."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = Warehouse(str(folder / "warehouse"))
        self.images = Images(folder / "images", self.warehouse)
        self.apart = Images(folder / "none", self.warehouse, 0)
        self.images.asking.builds = False
        self.runs: list[Run] = []
        self.schemas: dict[int, TableSchema] = {}

    def add(self, plan: MergePlan, records: Sequence[Record]) -> None:
        """One more run, of what the records of each key come to."""
        number = len(self.runs)
        keys: dict[Key, list[Record]] = {}
        for one in records:
            keys.setdefault(tuple(one.values[name] for name in plan.schema.primary_key), []).append(one)
        states = [state for of_key in keys.values() if (state := fold(plan, of_key)) is not None]
        write_run(Path(self.warehouse.path(*run_folder("t1", f"r{number}"))), plan, states)
        self.runs.append(read_run(self.warehouse, "t1", f"r{number}", number))
        self.schemas[number] = plan.schema

    def view(self, plan: MergePlan) -> View:
        """What lookups see of all runs, as ``plan`` shows them."""
        shown = Table("t1", "d", "t", len(self.runs), plan.schema, 1, NOW, NOW)
        return View(shown, plan, Snapshot(1, "t1", tuple(self.runs), None, NOW), self.schemas)

    def made(self, plan: MergePlan) -> None:
        """Make the images of answers."""
        for run in self.runs:
            if self.view(plan).readable[run.schema_id] is not None:
                self.images.want("t1", run, self.schemas[run.schema_id], plan)
        build(self.images)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    opened = Site(tmp_path)
    yield opened
    opened.images.close()


def records_of(plan: MergePlan, changes: Sequence[Change], first: int) -> list[Record]:
    numbered = enumerate(changes, first)
    records = [Record(KINDS_BY_TEXT[change.kind], change.values, place) for place, change in numbered]
    return [one for one in records if one.kind not in plan.dropped and plan.refusal_of(one) is None]


@pytest.mark.slow(reason="writes hundreds of runs and makes their images")
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32))
def test_answers_of_several_runs_are_those_of_their_state_rows(engine: str, seed: int) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    wide, written = widened_table(random, table)
    note(f"{table} {wide}")
    history = random_history(random, table, retracts, 30)
    with TemporaryDirectory() as folder:
        site = Site(Path(folder))
        plan, later = compile_plan(schema_of(table)), compile_plan(schema_of(wide))
        for piece in cut(random, len(history), 4):
            first = piece.start
            if first < 15:
                site.add(plan, records_of(plan, history[piece], first))
            else:
                site.add(later, records_of(later, [rewritten(one, written) for one in history[piece]], first))
        view = site.view(later)
        keys = sorted({tuple(one.values[name] for name in table.primary_key) for one in history})
        site.made(later)
        for key in keys:
            reported, expected = (find(view, images, key, view.columns) for images in (site.images, site.apart))
            assert (reported.body, reported.tag, reported.written) == (expected.body, expected.tag, expected.written), (
                key
            )
        at_once = KeysRequest(view, keys, view.columns)
        assert rows_as_json(site.images, at_once) == rows_as_json(site.apart, at_once)
        site.images.close()


SEQUENCE = {"sequence.field": "s"}
COLUMNS = (("id", "INT"), ("s", "TIMESTAMP(3)"), ("v", "STRING"))
WHOLE: dict[str, dict[str, str]] = {
    "the latest record": {},
    "the latest in order": SEQUENCE,
    "a delete that is the latest in order": SEQUENCE,
    "the last in order": {**SEQUENCE, "sequence.field.sort-order": "descending"},
    "the latest without deletes": {**SEQUENCE, "ignore-delete": "true"},
    "the latest of padded times": {**SEQUENCE, "sequence.auto-padding": "second-to-micro"},
    "adds before retracts": {**SEQUENCE, "sequence.auto-padding": "row-kind-flag"},
    "the first record": {"merge-engine": "first-row", "ignore-delete": "true"},
}


def record(kind: str, s: int | None, v: str | None, place: int) -> Record:
    moment = None if s is None else datetime(2026, 1, 1, 0, 0, 0, s * 1000)  # of no zone
    return Record(KINDS_BY_TEXT[kind], {"id": 1, "s": moment, "v": v}, place)


@pytest.mark.parametrize("name", WHOLE)
def test_where_one_row_wins_whole_no_state_row_is_read(site: Site, name: str) -> None:
    plan = compile_plan(schema(*COLUMNS, options=WHOLE[name]))
    drawn: list[tuple[str, int | None, str | None]] = [
        ("+I", 5, "a\nb"),
        ("+U", 3, "c"),
        ("-D", 7, None),
        ("+I", 7, "d"),
    ]
    if "without" in name or "first" in name:
        drawn = [one for one in drawn if one[0] != "-D"]
    if name.startswith("a delete"):
        del drawn[3]
    for place, one in enumerate(drawn):
        site.add(plan, [record(*one, place)])
    view = site.view(plan)
    expected = find(view, site.apart, (1,), view.columns)
    site.made(plan)
    for run in site.runs:
        remove_parquet(site.warehouse, run)
    reported = find(view, site.images, (1,), view.columns)
    assert (reported.body, reported.tag, reported.written) == (expected.body, expected.tag, expected.written)


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "partial-update", "ignore-delete": "true"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "max", "fields.s.aggregate-function": "max"},
        {"merge-engine": "partial-update", "ignore-delete": "true", "fields.s.sequence-group": "v"},
        {**SEQUENCE, "sequence.auto-padding": "row-kind-flag", "ignore-delete": "true"},
    ],
)
def test_where_columns_are_of_several_rows_none_wins_whole(options: dict[str, str]) -> None:
    assert compile_plan(schema(*COLUMNS, options=options)).whole is None


def test_what_tells_which_row_wins_is_part_of_the_form() -> None:
    forms: list[Any] = [compile_plan(schema(*COLUMNS, options=one)).answer_form for one in ({}, SEQUENCE)]
    assert len(set(forms)) == 2


@pytest.mark.parametrize("name", ["the latest record", "the first record"])
def test_where_arrival_decides_no_other_run_is_asked(site: Site, name: str) -> None:
    plan = compile_plan(schema(*COLUMNS, options=WHOLE[name]))
    for place in range(3):
        site.add(plan, [record("+I", place, f"of run {place}", place)])
    deciding = site.runs[-1 if "latest" in name else 0]
    site.images.want("t1", deciding, plan.schema, plan)
    build(site.images)
    reported = imaged_row(site.view(plan), site.images, ["1"])
    assert reported.row["v"] == ("of run 2" if "latest" in name else "of run 0")
    assert imaged_row(site.view(plan), site.apart, ["1"]) is None
