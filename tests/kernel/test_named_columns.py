"""Records that say which columns they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.schema import TableSchema
from app.files.layout import staging_file
from tests.builders import schema_of
from tests.histories import cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change, TableCase
from tests.site import Site

TELLING = {"record.absent-columns": "unchanged"}
COLUMNS = (("k", "INT"), ("g", "INT"), ("h", "INT"), ("a", "INT"), ("b", "STRING"))
PARTIAL = {"merge-engine": "partial-update"}
GROUP = {**PARTIAL, "fields.g,h.sequence-group": "a,b"}
REMOVING = {**GROUP, "partial-update.remove-record-on-sequence-group": "g"}


def telling_table(random: Random, engine: str) -> tuple[TableCase, bool]:
    while True:
        table, retracts = random_table(random, engine, times=2)
        if TELLING.items() <= table.options.items():
            return table, retracts


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**32))
def test_a_task_folds_what_records_name_and_nothing_else(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = telling_table(random, engine)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history = random_history(random, table, retracts, 100)
    for piece in cut(random, len(history), 3):
        site.merge([history[piece]])
    expected = visible(expected_rows(table, history))
    assert shown(table, site) == expected
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a full compaction"


def change(kind: str, named: str, **values: Any) -> Change:
    """A change of key 1 that names the columns whose letters are given."""
    every = {name: values.get(name) for name, _ in COLUMNS} | {"k": 1}
    return Change(kind, every, frozenset(named) | {"k"})


def test_records_name_columns_only_from_the_change_of_the_option_on(tmp_path: Path) -> None:
    """The rows of before enter with what they show; nulls of a group are values, those outside are not."""
    before, after = (
        TableCase(COLUMNS, ("k",), {**PARTIAL, "fields.g.sequence-group": "a", **o}) for o in ({}, TELLING)
    )
    site = Site(tmp_path, compile_plan(schema_of(before)))
    site.merge([[Change("+I", {"k": 1, "g": 5, "h": 1, "a": None, "b": None})]])
    site.plan = compile_plan(schema_of(after))
    site.merge([[change("+I", "gab", g=4, a=7, b="late")]])
    site.merge([[change("+I", "h", h=None)]])
    row: Mapping[str, Any] = {"k": 1, "g": 5, "h": None, "a": None, "b": "late"}
    assert site.rows() == {(1,): row}
    site.compact(0, 3)
    assert site.rows() == {(1,): row}


def test_a_row_that_was_removed_before_the_change_stays_so_for_what_is_older(tmp_path: Path) -> None:
    site = Site(tmp_path, compile_plan(schema_of(TableCase(COLUMNS, ("k",), REMOVING))))
    site.merge([[Change("+I", {"k": 1, "g": 5, "h": 1, "a": 1, "b": "x"})]])
    site.merge([[Change("-D", {"k": 1, "g": 6, "h": 1, "a": None, "b": None})]])
    site.plan = compile_plan(schema_of(TableCase(COLUMNS, ("k",), {**REMOVING, **TELLING})))
    site.merge([[change("+I", "gha", g=5, h=9, a=2)]])
    assert visible(site.rows()) == {}
    site.compact(0, 3)
    assert visible(site.rows()) == {}
    site.merge([[change("+I", "ghb", g=6, h=2, b="back")]])
    assert visible(site.rows()) == {(1,): {"k": 1, "g": 6, "h": 2, "a": None, "b": "back"}}


def test_named_columns_are_kept_by_a_change_of_meaning(tmp_path: Path) -> None:
    """A group of which one field is null, and a column that was cleared; id 63 is the last of its word."""
    columns = (*COLUMNS, ("free", "INT"))
    old, new = (
        compile_plan(with_id(schema_of(TableCase(columns, ("k",), o)), "free", 63))
        for o in ({**GROUP, **TELLING}, {**GROUP, **TELLING, "fields.a.aggregate-function": "sum"})
    )
    site = Site(tmp_path, old)
    every = dict.fromkeys(name for name, _ in columns) | {"k": 1}
    site.merge([[Change("+I", every | {"g": 5, "a": 1, "b": "x", "free": 2}, frozenset("kghab") | {"free"})]])
    site.merge([[Change("+I", every, frozenset({"k", "free"}))]])
    row = every | {"g": 5, "a": 1, "b": "x"}
    assert site.rows() == {(1,): row}
    site.plan = new
    site.merge([[Change("+I", every | {"g": 4, "a": 2}, frozenset("kgha"))]])
    assert site.rows() == {(1,): row | {"a": 3}}
    site.compact(0, 3)
    assert site.rows() == {(1,): row | {"a": 3}}


@pytest.mark.parametrize("options", [PARTIAL, {**PARTIAL, "fields.c0.sequence-group": "c62,c63,c64,c126,c127"}])
def test_columns_of_several_words_are_named_one_by_one(options: Mapping[str, str], tmp_path: Path) -> None:
    """Which columns a record names is told in words of 64: ids on both sides of each border."""
    names = [f"c{number}" for number in range(130)]
    table = TableCase((("k", "INT"), *((name, "INT") for name in names)), ("k",), {**options, **TELLING})
    random = Random(7)
    history = []
    for _ in range(60):
        named = random.sample(["c0", "c61", "c62", "c63", "c64", "c65", "c125", "c126", "c127", "c128"], 3)
        values = {name: random.choice([None, *range(9)]) if name in named else None for name in names}
        history.append(Change("+I", {"k": random.randrange(3)} | values, frozenset(named) | {"k"}))
    site = Site(tmp_path, compile_plan(schema_of(table)))
    for piece in cut(random, len(history), 3):
        site.merge([history[piece]])
    expected = visible(expected_rows(table, history))
    assert shown(table, site) == expected
    site.compact(0, len(site.runs))
    assert shown(table, site) == expected, "after a full compaction"


def test_columns_that_cannot_be_compared_are_kept_as_those_that_can(tmp_path: Path) -> None:
    """Each column of a group keeps the order it was set with: maps, and sequence fields
    that do not compare as they are (-0.0 before 0.0).
    """
    columns = (("k", "INT"), ("g", "DOUBLE"), ("m", "MAP<STRING, INT>"), ("l", "ARRAY<INT>"), ("a", "INT"))
    options = {**PARTIAL, **TELLING, "fields.g.sequence-group": "m,l,a"}
    site = Site(tmp_path, compile_plan(schema_of(TableCase(columns, ("k",), options))))

    def said(**values: Any) -> Change:
        return Change("+I", dict.fromkeys(name for name, _ in columns) | {"k": 1} | values, frozenset(values) | {"k"})

    site.merge([[said(g=0.0, m=[("x", 1)], l=[1], a=1), said(g=-0.0, m=[("x", 2)], l=[2], a=2)]])
    site.merge([[said(g=-0.0, m=[("x", 3)], l=[3], a=3), said(g=1.0, l=None)]])
    site.merge([[said(g=0.5, m=[("y", 4)], l=[4])]])
    row = {"k": 1, "g": 1.0, "m": [("y", 4)], "l": None, "a": 1}
    assert site.rows() == {(1,): row}
    site.compact(0, 3)
    assert site.rows() == {(1,): row}


def with_id(schema: TableSchema, name: str, column_id: int) -> TableSchema:
    columns = (replace(column, id=column_id) if column.name == name else column for column in schema.columns)
    return replace(schema, columns=tuple(columns))


@pytest.mark.parametrize(("options", "words"), [({}, []), (TELLING, ["_kf_named_0"])])
def test_only_tables_whose_records_name_columns_have_masks_in_their_files(
    tmp_path: Path, options: dict[str, str], words: list[str]
) -> None:
    site = Site(tmp_path, compile_plan(schema_of(TableCase(COLUMNS, ("k",), {**PARTIAL, **options}))))
    batch = site.stage([change("+I", "ka", a=1)])
    file = site.warehouse.path(*staging_file(site.table_id, batch.file))
    assert pq.read_schema(file).names == [
        "_kf_token",
        *(name for name, _ in COLUMNS),
        "_kf_kind",
        "_kf_position",
        *words,
    ]
