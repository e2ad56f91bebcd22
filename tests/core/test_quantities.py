"""Numbers, sizes and spans of time as people read them."""

from __future__ import annotations

import pytest

from app.core.quantities import counted, many, sized, spanned


@pytest.mark.parametrize(("number", "reported"), [(0, "0"), (1234567, "1\u2009234\u2009567"), (None, "–")])
def test_numbers_are_in_groups(number: int | None, reported: str) -> None:
    assert counted(number) == reported


@pytest.mark.parametrize(
    ("number", "noun", "reported"), [(1, "batch", "1 batch"), (2, "batch", "2 batches"), (0, "row", "0 rows")]
)
def test_nouns_follow_their_number(number: int, noun: str, reported: str) -> None:
    assert many(number, noun) == reported


@pytest.mark.parametrize(("size", "reported"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**60, "1024.0 PiB")])
def test_sizes_have_units(size: int, reported: str) -> None:
    assert sized(size) == reported


@pytest.mark.parametrize(
    ("seconds", "reported"), [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_700, "1 h 1 min"), (90_000, "1 d")]
)
def test_spans_are_reported_in_their_unit(seconds: float, reported: str) -> None:
    assert spanned(seconds) == reported
