"""What the files of a run hold, in order, does not change: stored runs are read for as long as their table lives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.table.options.entries import MergeEngine
from tests.core.tables import plan

COLUMNS = {"k": "INT", "a": "INT", "b": "STRING", "g": "INT", "h": "TIMESTAMP(3)", "m": "ARRAY<INT>"}
VISIBLE = ["k INT", "a INT", "b STRING", "g INT", "h TIMESTAMP_NTZ", "m ARRAY<INT>"]
CASES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "state_columns.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_run_holds_the_columns_that_it_always_held(name: str) -> None:
    case = CASES[name]
    one = plan(case["options"], COLUMNS | case.get("types", {}))
    shown = [f"{column} {data_type.spark}" for column, data_type in one.state_columns]
    assert shown[len(COLUMNS) :] == case["hidden"]
    assert shown[: len(COLUMNS)] == VISIBLE or "types" in case


def test_the_columns_of_every_engine_are_held_fast() -> None:
    engines = {case["options"].get("merge-engine", "deduplicate") for case in CASES.values()}
    assert engines == {engine.value for engine in MergeEngine}
