"""docs/three-ways-to-say-nothing.md shows rows that its records come to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.core.plan.merging.fold import combine_all, finish, lift
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.named_columns import names_in
from app.core.table.records import Record, RowKind
from tests.core.tables import table

PAGE = (Path(__file__).parent.parent / "docs" / "three-ways-to-say-nothing.md").read_text()
COLUMNS = {"id": "INT", "edited": "STRING", "status": "STRING", "city": "STRING", "note": "STRING"}
RECORDS = [json.loads(line) for line in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()]
# The options that the sentence above the records names.
OPTIONS = dict(re.findall(r"`([a-z.-]+) = ([a-z,-]+)`", PAGE.split("```json")[0]))
TOLD = [line.split("|")[2:4] for line in PAGE.splitlines() if re.match(r"\| \d", line)]


MATRIX = [line.split("|")[1:-1] for line in PAGE.splitlines() if re.match(r"\| (absent|null|delete): ", line)]


@pytest.mark.parametrize(("place", "meaning"), [(1, "unchanged"), (3, "null")])
def test_each_cell_of_the_matrix_is_the_effect_of_the_record_on_the_column(place: int, meaning: str) -> None:
    first = RECORDS[0]
    assert len(MATRIX) == 3
    for cells in MATRIX:
        raw = json.loads(re.findall(r"`(.*)`", cells[0])[0])
        row = _rows([first, raw], meaning)[-1]
        for cell, column in zip(cells[place : place + 2], ("city", "note"), strict=True):
            kept = f'stays `"{first[column]}"`'
            shown = "no row" if row is None else "becomes null" if row[column] is None else kept
            assert cell.strip() == shown, (raw, column)


@pytest.mark.parametrize(("place", "meaning"), [(0, "unchanged"), (1, "null")])
def test_the_row_after_each_record_is_the_one_that_is_shown(place: int, meaning: str) -> None:
    assert OPTIONS.keys() == {
        "merge-engine",
        "fields.edited.sequence-group",
        "partial-update.remove-record-on-sequence-group",
    }
    assert len(TOLD) == len(RECORDS)
    for row, raw, cells in zip(_rows(RECORDS, meaning), RECORDS, TOLD, strict=True):
        assert _shown(row) == cells[place].strip(), raw


def _rows(records: list[Any], meaning: str) -> list[Any]:
    """The row after each of the records; None where there is none."""
    schema = table(OPTIONS | {"record.absent-columns": meaning}, COLUMNS, key="id")
    plan = compile_plan(schema)
    states, rows = [], []
    for number, raw in enumerate(records):
        decoded = RecordDecoder(plan).decode([raw])
        values = {name: column[0] for name, column in decoded.columns.items()}
        named = names_in(schema, {word: bits[0] for word, bits in decoded.words.items()})
        states.append(lift(plan, Record(RowKind(decoded.kinds[0]), values, number, named)))
        state = combine_all(plan, states)
        rows.append(None if state is None else finish(plan, state))
    return rows


def _shown(row: Any) -> str:
    if row is None:
        return "no row"
    return f"`{json.dumps({name: row[name] for name in ('status', 'city', 'note')})}`"
