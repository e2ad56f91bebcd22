"""The pages of docs/reference are what ``make reference`` makes."""

from __future__ import annotations

import pytest

from tests.reference import MADE, PAGES


@pytest.mark.parametrize("name", MADE)
def test_a_page_of_the_reference_is_the_one_that_is_made(name: str) -> None:
    assert (PAGES / f"{name}.md").read_text() == MADE[name](), "make reference"


def test_the_reference_has_no_other_page() -> None:
    assert {page.stem for page in PAGES.glob("*")} == set(MADE)
