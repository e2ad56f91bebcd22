"""Overflow checks: what leaves its column over all runs is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.core.plan.merging.fold import combine_all
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.total_ranges import UNBOUNDED
from app.kernel.tasks import Overflow
from app.storage.runs.runs import ranges_in_footers
from tests import oracle
from tests.builders import schema_of
from tests.histories import cut
from tests.site import Site

COLUMNS = (("k", "INT"), ("g", "INT"), ("n", "TINYINT"), ("p", "DECIMAL(5,2)"))
PARTIAL = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "n,p",
    "fields.n.aggregate-function": "sum",
    "fields.p.aggregate-function": "product",
}
AGGREGATION = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "fields.n.aggregate-function": "sum",
    "fields.p.aggregate-function": "product",
}
REPLAYED = [
    PARTIAL | {"partial-update.remove-record-on-sequence-group": "g"},
    AGGREGATION | {"aggregation.remove-record-on-delete": "true"},
]


def site_of(folder: Path, options: dict[str, str]) -> Site:
    return Site(folder, compile_plan(schema_of(oracle.TableCase(COLUMNS, ("k",), options))))


def change(kind: str, k: int, g: int | None, n: int | None, p: str | None = None) -> oracle.Change:
    return oracle.Change(kind, {"k": k, "g": g, "n": n, "p": None if p is None else Decimal(p)})


def history(random: Random, size: int) -> list[oracle.Change]:
    kinds = ("+I", "+I", "+U", "-U", "-D")
    numbers, factors = (None, 1, 60, 100, -100), (None, "2.00", "10.00", "3.00", "0.50")
    return [
        change(random.choice(kinds), random.randrange(8), random.randrange(9), *drawn)
        for drawn in ((random.choice(numbers), random.choice(factors)) for _ in range(size))
    ]


def carried(site: Site) -> dict[Any, list[Any]]:
    """By key, the totals outside their columns as the states of each run have them; key by (run, k)."""
    carries = [bounds.carry for bounds in site.plan.totals]
    return {
        (place, state["k"]): [state[carry] for carry in carries]
        for place, run in enumerate(site.runs)
        for state in site.states(run)
    }


def replayed(site: Site) -> dict[Any, list[Any]]:
    """The same, as Python replays each state's log."""
    carries = [bounds.carry for bounds in site.plan.totals]
    states = ((place, state) for place, run in enumerate(site.runs) for state in site.states(run))
    nothing = {hidden.name: None for hidden in site.plan.hidden}
    again = (
        (place, combine_all(site.plan, [nothing | state, nothing | state | {"_kf_log": []}])) for place, state in states
    )
    return {(place, state["k"]): [state[carry] for carry in carries] for place, state in again if state is not None}


def _pieces(random: Random, changes: Sequence[oracle.Change]) -> list[Sequence[oracle.Change]]:
    return [changes[piece] for piece in cut(random, len(changes), 4)]


@pytest.mark.parametrize("options", REPLAYED)
def test_the_totals_of_replayed_rows_are_carried(options: dict[str, str], tmp_path: Path) -> None:
    random = Random(7)
    site = site_of(tmp_path, options)
    for piece in _pieces(random, history(random, 120)):
        site.merge([piece])
    assert carried(site) == replayed(site)
    site.compact(0, len(site.runs))
    assert carried(site) == replayed(site)
    assert any(total is not None for totals in carried(site).values() for total in totals)


@pytest.mark.parametrize("options", [*REPLAYED, PARTIAL, AGGREGATION])
def test_a_total_that_leaves_its_column_over_several_runs_is_found_by_its_key(
    options: dict[str, str], tmp_path: Path
) -> None:
    site = site_of(tmp_path, options)
    site.merge([[change("+I", 1, 1, 100), change("+I", 2, 1, 100)]])
    site.merge([[change("+I", 1, 2, 27), change("+I", 3, 1, 100)]])
    assert site.overflow() is None
    site.merge([[change("+I", 1, 3, 1)]])
    assert site.overflow() == Overflow("n", {"k": 1})


@pytest.mark.parametrize("options", REPLAYED)
def test_a_total_that_a_later_run_removes_does_not_overflow(options: dict[str, str], tmp_path: Path) -> None:
    site = site_of(tmp_path, options)
    site.merge([[change("+I", 1, 1, 100)]])
    site.merge([[change("+I", 1, 2, 100), change("-D", 1, 3, None), change("+I", 1, 4, 5)]])
    assert site.overflow() is None


def test_a_product_without_end_is_found(tmp_path: Path) -> None:
    site = site_of(tmp_path, REPLAYED[1])
    site.merge([[change("+I", 1, 1, None, "1.00")]])
    site.merge([[change("-U", 1, 2, None, "3.00")]])
    assert site.overflow() == Overflow("p", {"k": 1}, endless=True)


def test_runs_of_another_meaning_enter_as_the_rows_that_they_show(tmp_path: Path) -> None:
    largest = AGGREGATION | {"fields.n.aggregate-function": "max", "fields.n.ignore-retract": "true"}
    site = site_of(tmp_path, largest)
    site.merge([[change("+I", 1, 1, 100), change("+I", 1, 2, 90)]])
    site.merge([[change("+I", 1, 3, 80)]])
    site.plan = compile_plan(schema_of(oracle.TableCase(COLUMNS, ("k",), AGGREGATION)))
    site.merge([[change("+I", 1, 4, 27)]])
    assert site.overflow() is None
    site.merge([[change("+I", 1, 5, 1)]])
    assert site.overflow() == Overflow("n", {"k": 1})


@pytest.mark.parametrize("options", [*REPLAYED, PARTIAL, AGGREGATION])
def test_a_run_has_the_ranges_of_totals_that_its_footers_have(options: dict[str, str], tmp_path: Path) -> None:
    random = Random(11)
    site = site_of(tmp_path, options)
    site.ranges = 2
    for piece in _pieces(random, history(random, 120)):
        site.merge([piece])
    site.compact(0, 2)
    names = tuple((bounds.column.name, bounds.carry) for bounds in site.plan.totals)
    for run in site.runs:
        assert run.totals == ranges_in_footers(site.warehouse, site.table_id, run, names)
    assert any(UNBOUNDED in (run.totals or {}).values() for run in site.runs), "a total is outside its column"


def test_the_ranges_of_each_partition_are_its_own(tmp_path: Path) -> None:
    table = oracle.TableCase(
        (("p", "STRING"), *COLUMNS[:3]),
        ("p", "k"),
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    )
    site = Site(tmp_path, compile_plan(replace(schema_of(table), partition_keys=("p",))))
    values = (("a", 1, 5), ("b", 1, -7), ("a", 2, 3), ("c", 1, None))
    site.merge([[oracle.Change("+I", {"p": p, "k": k, "g": 1, "n": n}) for p, k, n in values]])
    assert {run.partition: run.totals for run in site.runs} == {
        '{"p":"a"}': {"n": ("0", "5")},
        '{"p":"b"}': {"n": ("-7", "0")},
        '{"p":"c"}': {"n": ("0", "0")},
    }
