"""Keys of every type: -0.0 and NaN, null, keys that share a token, partitions, hostile names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.keys import normalised, partition_of, token_of
from app.core.table.records import TOKEN_COLUMN, RowKind
from app.core.table.schema import TableSchema
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change, TableCase
from tests.site import Site

NULLABLE = {"primary-key.nullable": "true"}
NAN = float("nan")


def with_keys(table: TableCase, types: Sequence[str]) -> TableCase:
    """The table with key columns of other types in place of its own."""
    keys = tuple((f"key{place}", data_type) for place, data_type in enumerate(types))
    others = tuple((name, data_type) for name, data_type in table.columns if name not in table.primary_key)
    return TableCase((*keys, *others), tuple(name for name, _ in keys), table.options | NULLABLE)


def with_key(table: TableCase, change: Change, key: Sequence[Any]) -> Change:
    values = dict(zip(table.primary_key, key, strict=True))
    others = {name: value for name, value in change.values.items() if name not in ("k", "j")}
    named = None if change.named is None else (change.named - {"k", "j"}) | set(values)
    return Change(change.kind, values | others, named)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32))
def test_keys_that_share_a_token_are_kept_apart(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """A null leaves a token as it was: (null, x) and (x, null) have the same one."""
    random = Random(seed)
    drawn, retracts = random_table(random, engine)
    table = with_keys(drawn, ("STRING", "STRING"))
    note(str(table))
    texts = (None, "x", "y", "z")
    history = [
        with_key(table, change, (random.choice(texts), random.choice(texts)))
        for change in random_history(random, drawn, retracts, 80)
    ]
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    site.ranges = random.choice((1, 3))
    for piece in cut(random, len(history), 4):
        merged = len(site.runs)
        site.merge([history[piece]])
        before = visible(expected_rows(table, history[: piece.start]))
        after = visible(expected_rows(table, history[: piece.stop]))
        assert shown(table, site) == after
        changes = site.changes(site.runs[:merged], site.runs[merged:], row_deduplicate=False)
        keys = {kind: {tuple(row[n] for n in table.primary_key) for k, row in changes if k is kind} for kind in RowKind}
        assert keys[RowKind.INSERT] == after.keys() - before.keys()
        assert keys[RowKind.DELETE] == before.keys() - after.keys()
    first = random.randrange(len(site.runs)) if site.runs else 0
    site.compact(first, len(site.runs))
    assert shown(table, site) == visible(expected_rows(table, history))
    for run in site.runs:
        rows = site.table(run).select([TOKEN_COLUMN, *table.primary_key]).to_pylist()
        assert rows == sorted(rows, key=_place_in_a_file)


def _place_in_a_file(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the token, then the key, null first."""
    token, *key = row.values()
    return (token, *((value is not None, value or "") for value in key))


@pytest.mark.parametrize("data_type", ["FLOAT", "DOUBLE"])
def test_nan_is_one_key_and_both_zeros_are_one(data_type: str, tmp_path: Path) -> None:
    columns = (("k", data_type), ("j", data_type), ("n", "INT"))
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **NULLABLE}
    site = Site(tmp_path, compile_plan(schema_of(TableCase(columns, ("k", "j"), options))))
    values = (0.0, -0.0, NAN, -NAN, math.inf, None)
    keys = [(k, j) for k in values for j in values]
    for turn in range(2):
        site.merge([[Change("+I", {"k": k, "j": j, "n": 1}) for k, j in keys]])
        rows = [row for run in site.runs[turn:] for row in site.states(run)]
        assert len(rows) == 16
        assert sorted(row["n"] for row in rows) == [1] * 4 + [2] * 8 + [4] * 4
        assert "-0.0" not in repr([(row["k"], row["j"]) for row in rows])
    assert len(site.changes(site.runs[:1], site.runs[1:], row_deduplicate=False)) == 32
    site.compact(0, 2)
    assert sorted(row["n"] for row in site.states(site.runs[0])) == [2] * 4 + [4] * 8 + [8] * 4


def test_a_partition_has_its_own_run_whatever_its_type(tmp_path: Path) -> None:
    partitions: dict[str, tuple[str, list[Any]]] = {
        "a text": ("STRING", ["", "a/b=c%", "ä𝄞", "x" * 5000, None]),
        "day": ("DATE", [date(1969, 12, 31), date(2024, 2, 29)]),
        "amount": ("DECIMAL(38, 2)", [Decimal("-0.01"), Decimal("99999999999999999999.99")]),
        "moment": ("TIMESTAMP(6)", [datetime(2024, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1)]),
        "zoned": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [datetime(2024, 1, 1, tzinfo=UTC)]),
        "flag": ("BOOLEAN", [True, False]),
        "number": ("BIGINT", [-(2**63), 0, 2**63 - 1]),
        "real": ("DOUBLE", [0.0, 1e300, -0.0, NAN]),
    }
    for number, (column, (kind, values)) in enumerate(partitions.items()):
        fields = [{"name": column, "type": kind}, {"name": "id", "type": "INT"}, {"name": "n", "type": "BIGINT"}]
        options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **NULLABLE}
        body = {"fields": fields, "primaryKeys": [column, "id"], "partitionKeys": [column], "options": options}
        schema = TableSchema.from_json(body)
        site = Site(tmp_path / f"{number} a=b %20 ä", compile_plan(schema))
        site.ranges = 3
        site.merge([[Change("+I", {column: value, "id": key, "n": 1}) for value in values for key in range(9)]])
        names = {partition_of(schema, (normalised(schema.columns[0], value), 1)) for value in values}
        assert {run.partition for run in site.runs} == names
        assert len(site.runs) == len(names)
        for run in list(site.runs):
            rows = list(site.states(run))
            assert {partition_of(schema, (row[column], 1)) for row in rows} == {run.partition}
            assert sorted(row["id"] for row in rows) == list(range(9))
            assert len({file.name for file in run.files}) == len(run.files)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32))
def test_each_partition_has_the_state_rows_of_its_records(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    keys = random.choice([keys for keys in [("j",), ("k",), ("k", "j")] if set(keys) <= set(table.primary_key)])
    note(f"{table} by {keys}")
    whole, parted = (
        Site(tmp_path_factory.mktemp("warehouse"), compile_plan(replace(schema_of(table), partition_keys=partition)))
        for partition in ((), keys)
    )
    history = random_history(random, table, retracts, 60)
    for site in (whole, parted):
        site.merge([history[:30], history[30:]])
    states = [
        sorted((row for run in site.runs for row in site.table(run).to_pylist()), key=lambda row: row[TOKEN_COLUMN])
        for site in (whole, parted)
    ]
    assert repr(states[0]) == repr(states[1])
    assert sum(run.live_rows for run in whole.runs) == sum(run.live_rows for run in parted.runs)


HOSTILE = ("a b", "`,'", '"', "\\", "${env:HOME}", "$x{1}", "k.j", "K", "k", "ä\n\t", "'; DROP TABLE x", "_", "t", "v")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge-engine": "partial-update", "fields.G.sequence-group": "k"},
        {"merge-engine": "aggregation", "sequence.field": "G", "aggregation.remove-record-on-delete": "true"},
    ],
)
def test_names_are_names_whatever_they_hold(options: dict[str, str], tmp_path: Path) -> None:
    columns = (("G", "INT"), *((name, "STRING") for name in HOSTILE))
    schema = schema_of(TableCase(columns, HOSTILE[:2], options))
    site = Site(tmp_path, compile_plan(replace(schema, partition_keys=HOSTILE[:1])))
    for turn in range(3):
        row: dict[str, Any] = {name: f"{name}{turn}" for name in HOSTILE} | {"G": turn, HOSTILE[1]: "x"}
        site.merge([[Change("+I", row | {HOSTILE[0]: f"${{env:PATH}}/{key}'\\"}) for key in range(3)]])
    expected = {name: f"{name}2" for name in HOSTILE[2:]}
    for _ in range(2):
        rows = visible(site.rows())
        assert len(rows) == 3
        for key, found in rows.items():
            assert {name: (found or {})[name] for name in HOSTILE[2:]} == expected
            assert key[0].startswith("${env:PATH}/")
        by_partition = sorted(site.runs, key=lambda run: str(run.partition))
        assert len({run.partition for run in site.runs}) == 3
        site.runs = [run for run in by_partition if run.partition == by_partition[0].partition]
        site.compact(0, len(site.runs))
        site.runs += [run for run in by_partition if run.partition != by_partition[0].partition]


def test_every_task_writes_the_tokens_of_its_range(tmp_path: Path) -> None:
    table, retracts = random_table(Random(1), "aggregation")
    site = Site(tmp_path, compile_plan(schema_of(table)))
    site.ranges = 5
    for turn in range(3):
        site.merge([random_history(Random(turn), table, retracts, 90)])
    site.compact(0, 3)
    [run] = site.runs
    assert 1 < len(run.files) <= 5
    bounds = [(file.min_token, file.max_token) for file in run.files]
    assert bounds == sorted(bounds)
    assert all(one[1] < other[0] for one, other in pairwise(bounds))
    for row in site.table(run).to_pylist():
        assert token_of(site.plan.schema, tuple(row[name] for name in table.primary_key)) == row[TOKEN_COLUMN]


def test_many_partitions_do_not_keep_their_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition whose file was finished early goes on in another one, of later tokens."""
    table = TableCase((("p", "INT"), ("k", "INT"), ("v", "INT")), ("p", "k"), {})
    site = Site(tmp_path, compile_plan(replace(schema_of(table), partition_keys=("p",))))
    # Bounds that a few rows reach.
    # Sizes that a few records reach; with the real ones a test would write gigabytes.
    monkeypatch.setattr("app.kernel.records.PIECE_BYTES", 2**12)
    monkeypatch.setattr("app.kernel.write._MOST_PENDING", 2**8)
    monkeypatch.setattr("app.kernel.write._MOST_OPEN", 3)
    site.merge([[Change("+I", {"p": k % 20, "k": k, "v": turn}) for k in range(1000)] for turn in range(2)])
    assert len(site.runs) == 20
    assert max(len(run.files) for run in site.runs) > 1
    for run in site.runs:
        assert len({file.name for file in run.files}) == len(run.files)
        bounds = [(file.min_token, file.max_token) for file in run.files]
        assert all(one[1] < other[0] for one, other in pairwise(bounds))
        assert [row["v"] for row in site.states(run)] == [1] * 50
        assert (run.rows, run.live_rows) == (50, 50)
