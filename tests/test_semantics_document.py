"""docs/semantics.md says what the code does: every option, function and difference, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.core.functions.entries import FUNCTIONS
from app.core.table.options import FIELD_OPTIONS, TABLE_OPTIONS, has_effect

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "semantics.md").read_text()


def rows_of(heading: str) -> dict[str, list[str]]:
    """The table below a heading: first cell (without backticks) to the other cells."""
    section = DOCUMENT.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("|")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in rows[2:]}


def test_every_table_option_is_listed_once_and_no_other() -> None:
    assert set(rows_of("Options of the table")) == set(TABLE_OPTIONS)


@pytest.mark.parametrize("key", TABLE_OPTIONS)
def test_an_option_without_effect_is_said_to_have_none(key: str) -> None:
    state = rows_of("Options of the table")[key][0]
    assert (state == "no effect") is not has_effect(key)


def test_every_column_option_is_listed_and_no_other() -> None:
    assert set(rows_of("Options of a column")) == set(FIELD_OPTIONS)


def test_every_function_is_listed_with_its_retract_rule_and_no_other() -> None:
    listed = rows_of("Aggregate functions")
    assert set(listed) == set(FUNCTIONS)
    for name, function in FUNCTIONS.items():
        assert (listed[name][1] == "refused") is not function.retracts, name


def test_every_deliberate_difference_of_the_cases_is_explained() -> None:
    explained = set(rows_of("Deliberate differences"))
    differences = json.loads((ROOT / "tests" / "differences.json").read_text())
    assert {difference["quirk"] for difference in differences.values()} <= explained
