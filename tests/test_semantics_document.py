"""docs/semantics.md says what the code does: every option, function and difference, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.core.functions.entries import FUNCTIONS
from app.core.table.option import Change, Option
from app.core.table.option_entries import FIELD_OPTIONS, TABLE_OPTIONS

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "semantics.md").read_text()


def rows_of(heading: str) -> dict[str, list[str]]:
    """The table below a heading: first cell (without backticks) to the other cells."""
    section = DOCUMENT.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("|")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in rows[2:]}


OPTIONS = [
    *[("Options of the table", option) for option in TABLE_OPTIONS.values()],
    *[("Options of a column", option) for option in FIELD_OPTIONS.values()],
]
CHANGES = {Change.FREE: "", Change.NEVER: "never", Change.TURNED_ON: "on, not off"}


def test_every_option_is_listed_once_and_no_other() -> None:
    assert set(rows_of("Options of the table")) == set(TABLE_OPTIONS)
    assert set(rows_of("Options of a column")) == set(FIELD_OPTIONS)


@pytest.mark.parametrize(("heading", "option"), OPTIONS, ids=[option.key for _, option in OPTIONS])
def test_an_option_is_described_as_its_entry_says(heading: str, option: Option) -> None:
    meaning, state, default, folds, changes, _ = rows_of(heading)[option.key]
    assert meaning == option.meaning
    assert state == ("done" if option.effect else "no effect")
    assert (option.parse(default.strip("`")) if default else None) == (None if option.default == () else option.default)
    assert folds == ("yes" if option.folds else "")
    assert changes == CHANGES[option.change]


def test_every_function_is_listed_once_and_no_other() -> None:
    assert set(rows_of("Aggregate functions")) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_described_as_its_entry_says(name: str) -> None:
    meaning, takes, retracts, _ = rows_of("Aggregate functions")[name]
    function = FUNCTIONS[name]
    assert (meaning, takes) == (function.meaning, function.takes)
    assert (retracts == "refused") is not function.retracts


def test_every_deliberate_difference_of_the_cases_is_explained() -> None:
    explained = set(rows_of("Deliberate differences"))
    differences = json.loads((ROOT / "tests" / "differences.json").read_text())
    assert {difference["quirk"] for difference in differences.values()} <= explained
