"""Numbers, sizes and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.console.parts.words import counted, cut, many, segment, shown, sized, spanned, timed


@pytest.mark.parametrize(("number", "told"), [(0, "0"), (1234567, "1\u2009234\u2009567"), (None, "–")])
def test_numbers_are_in_groups(number: int | None, told: str) -> None:
    assert counted(number) == told


@pytest.mark.parametrize(
    ("number", "noun", "told"), [(1, "batch", "1 batch"), (2, "batch", "2 batches"), (0, "row", "0 rows")]
)
def test_nouns_follow_their_number(number: int, noun: str, told: str) -> None:
    assert many(number, noun) == told


@pytest.mark.parametrize(("size", "told"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**60, "1024.0 PiB")])
def test_sizes_have_units(size: int, told: str) -> None:
    assert sized(size) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_700, "1 h 1 min"), (90_000, "1 d")],
)
def test_spans_are_told_in_their_unit(seconds: float, told: str) -> None:
    assert spanned(seconds) == told


def test_the_rest() -> None:
    assert timed(datetime(2026, 3, 1, 10, 5, tzinfo=UTC)) == "2026-03-01 10:05:00 UTC"
    assert segment("a/b c+") == "a%2Fb%20c%2B"
    assert cut("x" * 201, 200).startswith("x" * 200 + "… (201")
    assert (shown(None), shown("a"), shown({"a": [1]})) == ("null", "a", '{"a": [1]}')
