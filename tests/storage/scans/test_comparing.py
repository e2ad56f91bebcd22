"""Rows before and after, where keys share a token and where rows are many: what no history reaches by itself."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from app.core.plan.merging.fold import lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import Run
from app.core.table.records import Record, RowKind
from app.files.layout import Warehouse, run_folder
from app.files.reading import TokenRange
from app.storage.scans.comparing import Difference, Sides, differences
from app.storage.scans.merging import Source
from tests.services.builders import schema
from tests.written import read_run, write_run

PLAN = compile_plan(schema(("id", "BIGINT"), ("n", "STRING")))


def source(warehouse: Warehouse, plan: MergePlan = PLAN) -> Source:
    columns = tuple(plan.schema.columns)
    return Source(warehouse, "t1", plan, {0: plan.schema}, frozenset({0}), columns, ())


def run(warehouse: Warehouse, name: str, rows: Mapping[int, str | None], *, tokens: int = 2**40) -> Run:
    """A run of the rows (key, value), None for a deleted key; the token of a key is the rest of its division by
    ``tokens``.
    """
    records = [
        Record(RowKind.INSERT if text is not None else RowKind.DELETE, {"id": key, "n": text}, place)
        for place, (key, text) in enumerate(rows.items())
    ]
    states = [lift(PLAN, record) for record in records]
    folder = Path(warehouse.path(*run_folder("t1", name)))
    write_run(folder, PLAN, states, rows_per_group=2_000, token=lambda key: key[0] % tokens)
    return read_run(warehouse, "t1", name, 0)


def found(warehouse: Warehouse, before: list[Run], after: list[Run]) -> list[Difference]:
    sides = Sides("t1", before, after)
    touched = sides.touched(warehouse, TokenRange())
    return [*differences(source(warehouse), sides, TokenRange(), touched)]


def pairs(batches: list[pa.RecordBatch]) -> dict[int, str]:
    return {row["id"]: row["n"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.parametrize("tokens", [1, 2, 3, 2**40])
def test_keys_that_share_a_token_are_told_apart(warehouse: Warehouse, tokens: int) -> None:
    first = run(warehouse, "r1", {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}, tokens=tokens)
    second = run(warehouse, "r2", {2: "B", 3: "c", 4: None, 6: "f", 7: None}, tokens=tokens)
    parts = found(warehouse, [first], [first, second])
    assert sum(part.keys for part in parts) == 5
    assert pairs([part.added for part in parts]) == {6: "f"}
    assert pairs([part.removed for part in parts]) == {4: "d"}
    assert pairs([part.before for part in parts]) == {2: "b"}
    assert pairs([part.after for part in parts]) == {2: "B"}


def test_rows_of_keys_that_nothing_touched_are_left_out(warehouse: Warehouse) -> None:
    first = run(warehouse, "r1", dict.fromkeys(range(10000), "a"))
    second = run(warehouse, "r2", {4_001: "b", 4_500: "b"})
    sides = Sides("t1", [first], [first, second])
    touched = sides.touched(warehouse, TokenRange())
    assert touched.tolist() == [4_001, 4_500]
    assert sides.rows_to_read(warehouse, TokenRange(), touched) == 2_000 + 2  # one row group of five
    assert sum(len(part.after) for part in found(warehouse, [first], [first, second])) == 2
    assert found(warehouse, [first, second], [first, second]) == []


@pytest.mark.slow(reason="writes 100 MB")
def test_the_memory_does_not_grow_with_the_rows(warehouse: Warehouse) -> None:
    first = run(warehouse, "r1", dict.fromkeys(range(60000), "a" * 1000))
    second = run(warehouse, "r2", dict.fromkeys(range(30000, 90000), "b" * 1000))
    sides = Sides("t1", [first], [first, second])
    touched = sides.touched(warehouse, TokenRange())
    held, most, seen = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for part in differences(source(warehouse), sides, TokenRange(), touched):
        seen += part.keys
        most = max(most, pa.total_allocated_bytes() - held)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 60_000
    assert most < 100 * 2**20
    assert python < 100 * 2**20
