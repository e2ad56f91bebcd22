"""The values of options as somebody would write them: defaults, and what can be chosen."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import pytest

from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS
from app.core.table.options.option import Option
from app.core.table.options.values import duration, size, spelled_duration, spelled_size


@pytest.mark.parametrize("option", [*TABLE_OPTIONS.values(), *FIELD_OPTIONS.values()], ids=lambda option: option.key)
def test_the_text_of_a_default_is_read_as_the_default(option: Option) -> None:
    if option.default_text:
        assert option.parse(option.default_text) == option.default
    else:
        assert option.default in (None, (), "")


@pytest.mark.parametrize("option", [*TABLE_OPTIONS.values()], ids=lambda option: option.key)
def test_what_can_be_chosen_is_read(option: Option) -> None:
    assert len({option.parse(choice) for choice in option.choices}) == len(option.choices)
    assert bool(option.choices) is isinstance(option.default, bool | StrEnum) or option.key == "lookup.consistency"


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (timedelta(0), "0 d"),
        (timedelta(milliseconds=1500), "1500 ms"),
        (timedelta(seconds=90), "90 s"),
        (timedelta(minutes=90), "90 min"),
        (timedelta(hours=36), "36 h"),
        (timedelta(days=7), "7 d"),
    ],
)
def test_a_time_is_spelled_in_the_largest_unit_that_says_it(time: timedelta, text: str) -> None:
    assert (spelled_duration(time), duration(text)) == (text, time)


@pytest.mark.parametrize(("number", "text"), [(1, "1 b"), (1536, "1536 b"), (2048, "2 kb"), (3 * 2**30, "3 gb")])
def test_bytes_are_spelled_in_the_largest_unit_that_says_them(number: int, text: str) -> None:
    assert (spelled_size(number), size(text)) == (text, number)
