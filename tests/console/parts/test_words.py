"""What templates write of times, names in addresses and values."""

from __future__ import annotations

from datetime import UTC, datetime

from app.console.parts.words import cut, nth, placed, segment, shown, timed
from app.services.explaining.explained import RecordPlace


def test_the_rest() -> None:
    assert timed(datetime(2026, 3, 1, 10, 5, tzinfo=UTC)) == "2026-03-01 10:05:00 UTC"
    assert segment("a/b c+") == "a%2Fb%20c%2B"
    assert cut("x" * 201, 200).startswith("x" * 200 + "… (201")
    assert (shown(None), shown("a"), shown({"a": [1]})) == ("null", "a", '{"a": [1]}')


def test_records_are_counted_from_1() -> None:
    assert (nth(0), nth(1233)) == ("1", "1\u2009234")
    assert placed(RecordPlace("id", 3, 0)) == "batch 3, record 1"
