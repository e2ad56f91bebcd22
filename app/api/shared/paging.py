"""Pages of lists: how many items a page has, and where it begins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from app.services.shared.pages import PageRequest

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


def page_size(wanted: int | None, default: int = DEFAULT_PAGE, largest: int = LARGEST_PAGE) -> int:
    """Return the most items of a page for ``maxResults=wanted``.

    As in Paimon's REST catalog: nothing, 0 or less is the default, and more than the largest page is the largest page.
    """
    return default if wanted is None or wanted < 1 else min(wanted, largest)


def size_words(default: int = DEFAULT_PAGE, largest: int = LARGEST_PAGE) -> str:
    """Return the description of ``maxResults`` for the OpenAPI document."""
    return f"Page size; {default} without it and for 0 or less, at most {largest}."


def is_of_64_bits(number: int) -> bool:
    """Return whether the number fits an ``int64``."""
    return -(2**63) <= number < 2**63


def _of_64_bits(number: int) -> int:
    if not is_of_64_bits(number):
        raise PydanticCustomError("int_parsing_size", "Input should be a whole number of 64 bits")
    return number


async def _wanted_page(
    max_results: Annotated[
        Annotated[int, AfterValidator(_of_64_bits)] | None, Query(alias="maxResults", description=size_words())
    ] = None,
    page_token: Annotated[
        str | None, Query(alias="pageToken", description="The nextPageToken of the page before.")
    ] = None,
) -> PageRequest:
    return PageRequest(page_size(max_results), page_token)


WantedPage = Annotated[PageRequest, Depends(_wanted_page)]


def name_pattern(alias: str) -> Any:
    """Return the query parameter ``alias``: a pattern that names must match."""
    return Query(alias=alias, description="SQL LIKE: `%`, `_`, and a backslash to escape them.")
