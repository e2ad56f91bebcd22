"""Columns that change events cannot fill with their position are refused when the table is made."""

from __future__ import annotations

import pytest

from app.core.plan.checks.option_checks import check_options
from app.core.table.options.event_position import EventPosition
from tests.services.builders import schema

COLUMNS = (("id", "BIGINT"), ("place", "BIGINT"), ("words", "STRING"), ("small", "INT"), ("kind", "STRING"))


def faults(column: str, position: str, **options: str) -> list[tuple[str, str]]:
    table = schema(*COLUMNS, options={f"fields.{column}.from-event": position, **options})
    return [(fault.code, fault.pointer) for fault in (*table.parsed.faults, *check_options(table))]


@pytest.mark.parametrize("position", EventPosition)
def test_a_position_has_one_type_of_column(position: EventPosition) -> None:
    is_text = position is EventPosition.SOURCE_COMMIT_LSN
    right, wrong = ("words", "place") if is_text else ("place", "words")
    assert faults(right, position) == []
    assert faults(wrong, position) == [("illegal_column_type", f"/options/fields.{wrong}.from-event")]
    assert faults("small", position) == [("illegal_column_type", "/options/fields.small.from-event")]


def test_key_and_row_kind_say_something_else() -> None:
    assert faults("id", "source.lsn") == [("contradicting_options", "/options/fields.id.from-event")]
    found = faults("kind", "source.commit_lsn", **{"rowkind.field": "kind"})
    assert found == [("contradicting_options", "/options/fields.kind.from-event")]


def test_an_unknown_position_is_refused_with_those_that_are_known() -> None:
    table = schema(*COLUMNS, options={"fields.place.from-event": "source.offset"})
    [fault] = table.parsed.faults
    assert (fault.code, "source.lsn" in fault.fix) == ("illegal_option_value", True)
