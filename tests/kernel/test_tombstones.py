"""Deleted rows in compactions: what is forgotten and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.core.plan.merging.fold import compacted
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.row import TOUCHED_COLUMN
from tests import oracle
from tests.builders import schema_of
from tests.core.plan.test_tombstones import REMOVED, RETAINED, SEQUENCE, SUMMED
from tests.site import Site

COLUMNS = (("id", "INT"), ("g", "INT"), ("n", "INT"))


def plan_of(options: dict[str, str]) -> MergePlan:
    return compile_plan(schema_of(oracle.TableCase(COLUMNS, ("id",), options)))


def change(kind: str, key: int, g: int, n: int | None = None) -> oracle.Change:
    return oracle.Change(kind, {"id": key, "g": g, "n": n})


def times(site: Site) -> dict[int, Any]:
    """The time of each state row of the only run, by key."""
    [run] = site.runs
    return {state["id"]: state[TOUCHED_COLUMN] for state in site.states(run)}


@pytest.mark.parametrize("options", [SEQUENCE, REMOVED, SUMMED, {**SUMMED, **SEQUENCE}])
def test_a_compaction_forgets_what_was_deleted_long_ago(options: dict[str, str], tmp_path: Path) -> None:
    site = Site(tmp_path, plan_of(options | RETAINED))
    site.merge([[change("+I", 1, 1, 5), change("-D", 1, 2), change("+I", 3, 1, 5), change("-D", 4, 2)]])
    site.now = 1_050
    site.merge([[change("-D", 2, 2), change("+I", 3, 2, 6)]])
    site.merge([[change("-D", 4, 3)]])
    site.now = 1_100
    states = [state for run in site.runs for state in site.states(run) if state["id"] in (1, 2)]
    assert {state["id"]: compacted(site.plan, state, site.now, oldest=True) is None for state in states} == {
        1: True,
        2: False,
    }
    site.compact(1, 3)
    assert {state["id"] for state in site.states(site.runs[-1])} == {2, 3, 4}, "older runs may hold what they hide"
    site.compact(0, 2)
    assert times(site) == {2: 1_050, 3: 1_050, 4: 1_050}
    site.now = 10**6
    site.compact(0, 1)
    assert times(site) == {3: 1_050}


def test_rows_written_before_the_option_was_set_age_from_the_next_compaction(tmp_path: Path) -> None:
    site = Site(tmp_path, plan_of(SEQUENCE))
    site.merge([[change("-D", 1, 5), change("-D", 2, 5)]])
    site.plan = plan_of(SEQUENCE | RETAINED)
    site.now = 5_000
    site.merge([[change("-D", 2, 6)]])
    site.now = 6_000
    site.compact(0, 2)
    assert times(site) == {1: 6_000, 2: 6_000}
    site.now = 6_100
    site.compact(0, 1)
    assert site.runs == []


def test_a_record_that_comes_after_its_row_was_forgotten_revives_it(tmp_path: Path) -> None:
    site = Site(tmp_path, plan_of(SEQUENCE | RETAINED))
    site.merge([[change("-D", 1, 5), change("+I", 9, 1, 1)]])
    site.now = 2_000
    site.compact(0, 1)
    site.merge([[change("+I", 1, 3, 30)]])
    assert site.rows()[1,] == {"id": 1, "g": 3, "n": 30}
