"""docs/semantics.md says what the code does: every option, function and difference, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.core.functions.entries import FUNCTIONS
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS
from app.core.table.options.option import Change, Option

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "semantics.md").read_text()


def rows_of(heading: str) -> dict[str, dict[str, str]]:
    """The rows of all tables below a heading: first cell (without backticks) to the cells by the titles of columns."""
    section = DOCUMENT.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    rows: dict[str, dict[str, str]] = {}
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        titles, _, *lines = (_cells(line) for line in table.splitlines())
        for cells in lines if titles[0] in WALKED else ():
            assert cells[0].strip("`") not in rows
            rows[cells[0].strip("`")] = dict(zip(titles, cells, strict=True))
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


WALKED = ("option", "function", "Paimon")  # first titles of the tables that are compared; others only explain
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
    row = rows_of(heading)[option.key]
    default = row["default"].strip("`")
    assert row["meaning"] == option.meaning
    assert (option.parse(default) if default else None) == (None if option.default == () else option.default)
    assert row["change"] == CHANGES[option.change]
    assert ("rules" in row) is option.effect  # the others have a table without that column
    assert row.get("rules", "") == ("yes" if option.folds else "")


def test_every_function_is_listed_once_and_no_other() -> None:
    assert set(rows_of("Aggregate functions")) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_described_as_its_entry_says(name: str) -> None:
    row, function = rows_of("Aggregate functions")[name], FUNCTIONS[name]
    assert (row["meaning"], row["types"]) == (function.meaning, function.takes)
    assert (row["retracts"] == "refused") is not function.retracts


def test_every_deliberate_difference_of_the_cases_is_explained() -> None:
    explained = {row["id"] for row in rows_of("Deliberate differences").values()}
    differences = json.loads((ROOT / "tests" / "differences.json").read_text())
    assert {difference["quirk"] for difference in differences.values()} <= explained
