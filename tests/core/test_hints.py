"""What messages say of names stays short, and is found in bounded time, whatever the names are."""

from __future__ import annotations

from app.core.hints import LONGEST_COMPARED, LONGEST_SHOWN, MOST_COMPARED, MOST_NAMED, cut, nearest, some_of


def test_the_nearest_name_is_found() -> None:
    assert nearest("colour", ["color", "size"]) == "color"
    assert nearest("zzz", ["color", "size"]) is None


def test_long_words_and_all_but_the_first_of_many_names_are_not_compared() -> None:
    long = "a" * (LONGEST_COMPARED + 1)
    assert nearest(long, [long]) is None
    assert nearest("a" * LONGEST_COMPARED, [long, "a" * LONGEST_COMPARED]) == "a" * LONGEST_COMPARED
    many = [f"x{number}" for number in range(MOST_COMPARED)]
    assert nearest("color", [*many, "color"]) is None


def test_of_many_names_the_first_are_reported_and_how_many_more_there_are() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of([]) == ""
    names = [f"c{number}" for number in range(MOST_NAMED + 5)]
    assert some_of(names) == ", ".join(names[:MOST_NAMED]) + " and 5 more"


def test_a_long_text_is_cut() -> None:
    assert cut("x" * LONGEST_SHOWN) == "x" * LONGEST_SHOWN
    assert len(cut("x" * 10_000_000)) == LONGEST_SHOWN
    assert len(some_of(["x" * 1_000_000] * 100)) < (MOST_NAMED + 1) * (LONGEST_SHOWN + 2)
