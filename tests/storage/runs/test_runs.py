"""Checks of runs, by their files, footers and ranges of totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import Unavailable
from app.core.plan.merging.fold import lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.history import Run
from app.core.table.records import Record, RowKind
from app.core.table.total_ranges import UNBOUNDED
from app.core.types.numbers import EXACT
from app.files.layout import Warehouse, run_folder
from app.storage.runs.runs import check_written, totals_fit
from tests.services.builders import SUM, schema
from tests.written import read_run, write_run


def folder(warehouse: Warehouse, run: str = "r1") -> Path:
    return Path(warehouse.path(*run_folder("t1", run)))


def sums(kind: str) -> MergePlan:
    return compile_plan(schema(("id", "INT"), ("n", kind), options=SUM))


def written(warehouse: Warehouse, plan: MergePlan, values: Sequence[Any], run: str = "r1", **layout: Any) -> Run:
    """A run that holds the state row of one record per value."""
    records = [Record(RowKind.INSERT, {"id": number, "n": value}) for number, value in enumerate(values)]
    write_run(folder(warehouse, run), plan, [lift(plan, record) for record in records], **layout)
    return read_run(warehouse, "t1", run, 0)


def test_files_that_are_not_in_this_warehouse_are_missed(warehouse: Warehouse) -> None:
    run = written(warehouse, sums("INT"), range(4), files=2)
    check_written(warehouse, "t1", [run])
    (folder(warehouse) / "part-00001.parquet").unlink()
    with pytest.raises(Unavailable, match="KEYFOLD_WAREHOUSE"):
        check_written(warehouse, "t1", [run])


def minus(a: Any, b: Any) -> Any:
    return EXACT.subtract(a, b) if isinstance(a, Decimal) or isinstance(b, Decimal) else a - b


HIGH: Mapping[str, Any] = {
    "TINYINT": 127,
    "INT": 2**31 - 1,
    "BIGINT": 2**63 - 1,
    "DECIMAL(5, 2)": Decimal("999.99"),
    "DECIMAL(18, 4)": Decimal("99999999999999.9999"),
    "DECIMAL(38, 0)": Decimal("9" * 38),
}


@pytest.mark.parametrize("kind", HIGH)
def test_footers_prove_that_totals_fit_between_the_lowest_and_the_highest_number(
    warehouse: Warehouse, kind: str
) -> None:
    plan, high = sums(kind), HIGH[kind]
    runs = [written(warehouse, plan, [minus(high, 7), 1, None]), written(warehouse, plan, [7], "r2")]
    assert totals_fit(warehouse, "t1", runs, plan.totals)
    too_much = [*runs, written(warehouse, plan, [1], "r3")]
    too_little = [written(warehouse, plan, [minus(0, high)], "r4"), written(warehouse, plan, [-7], "r5")]
    assert not totals_fit(warehouse, "t1", too_much, plan.totals)
    assert not totals_fit(warehouse, "t1", too_little, plan.totals)


def test_the_highest_and_the_lowest_value_of_all_row_groups_count(warehouse: Warehouse) -> None:
    plan = sums("TINYINT")
    runs = [written(warehouse, plan, [0, 0, 100, 0], rows_per_group=1, files=2), written(warehouse, plan, [28], "r2")]
    assert not totals_fit(warehouse, "t1", runs, plan.totals)
    assert totals_fit(warehouse, "t1", [runs[0], written(warehouse, plan, [27], "r3")], plan.totals)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("TINYINT", [127, -100, 1]),  # no key need be in all: the 127 must not be offset by the -100
        ("DECIMAL(38, 0)", [Decimal(99999999999999999999999999994999999999), *[Decimal(4_900_000_000)] * 2]),
    ],
)
def test_no_run_hides_the_extreme_of_another_and_nothing_is_rounded(
    warehouse: Warehouse, kind: str, values: list[Any]
) -> None:
    plan = sums(kind)
    runs = [written(warehouse, plan, [value], f"r{place}") for place, value in enumerate(values)]
    assert not totals_fit(warehouse, "t1", runs, plan.totals)


def test_a_total_that_is_already_outside_proves_that_the_rows_must_be_read(warehouse: Warehouse) -> None:
    plan = sums("TINYINT")
    state = {"id": 1, "n": None, plan.totals[0].carry: 200}
    write_run(folder(warehouse), plan, [state, lift(plan, Record(RowKind.INSERT, {"id": 2, "n": 1}))])
    assert not totals_fit(warehouse, "t1", [read_run(warehouse, "t1", "r1", 0)], plan.totals)


def test_the_ranges_of_a_run_are_believed_before_its_footers(warehouse: Warehouse) -> None:
    plan = sums("TINYINT")
    run = written(warehouse, plan, [100])
    assert totals_fit(warehouse, "t1", [run], plan.totals)
    assert not totals_fit(warehouse, "t1", [replace(run, totals={"n": ("0", "128")})], plan.totals)
    assert not totals_fit(warehouse, "t1", [replace(run, totals={"n": UNBOUNDED})], plan.totals)
    assert not totals_fit(warehouse, "t1", [replace(run, totals={})], plan.totals), "nothing is known of the column"
    gone = replace(run, id="gone", totals={"n": ("-128", "127")})
    assert totals_fit(warehouse, "t1", [gone], plan.totals)
    assert totals_fit(warehouse, "t1", [], plan.totals)
