"""One idiom of pages for all lists, and SQL's LIKE over names."""

from __future__ import annotations

import pytest

from app.core.errors import Invalid
from app.services.shared.pages import PageRequest, is_like, like, page_of


def test_a_page_ends_at_its_limit_and_names_its_last_item_where_there_is_more() -> None:
    first = page_of([1, 2, 3], PageRequest(2), str)
    assert (first.items, first.next_token) == ([1, 2], "2")
    assert page_of([1, 2], PageRequest(2), str).next_token is None
    assert page_of([], PageRequest(2), str).next_token is None


def test_an_empty_token_is_the_first_page_and_a_number_is_read_strictly() -> None:
    assert (PageRequest(1, "").after, PageRequest(1, "").after_number) == (None, None)
    assert PageRequest(1, "7").after_number == 7
    for token in ("x", "-1", "1.0", "9" * 19):
        with pytest.raises(Invalid, match="page token"):
            _ = PageRequest(1, token).after_number


@pytest.mark.parametrize(
    ("name", "pattern", "is_it"),
    [
        ("day=2024-05-01/shop=b", "day=2024%", True),
        ("day=2024-05-01/shop=b", "day=2024", False),
        ("a\nb", "a_b", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("50%", "50\\%", True),
        ("50x", "50\\%", False),
        ("a\\", "a\\\\", True),
        ("any", None, True),
    ],
)
def test_names_are_matched_as_sqls_like_does(name: str, pattern: str | None, is_it: bool) -> None:
    assert is_like(name, like(pattern)) is is_it


def test_a_pattern_that_ends_in_a_single_backslash_is_refused() -> None:
    with pytest.raises(Invalid, match="single backslash"):
        like("a\\")
