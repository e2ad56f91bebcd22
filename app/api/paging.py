"""Pages of lists, said once: how many items a page has, and where it begins."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000
PageToken = Annotated[str | None, Query(alias="pageToken", description="The nextPageToken of the page before.")]


def page_size(asked: int | None, default: int = DEFAULT_PAGE, largest: int = LARGEST_PAGE) -> int:
    """The most items of a page for ``maxResults=asked``.

    As in Paimon's REST catalog: nothing, 0 or less is the default, and more than the largest page is the largest page.
    """
    return default if asked is None or asked < 1 else min(asked, largest)


def size_words(default: int = DEFAULT_PAGE, largest: int = LARGEST_PAGE) -> str:
    """What the OpenAPI document says of ``maxResults``."""
    return f"Page size; {default} without it and for 0 or less, at most {largest}."


async def _page_size(
    max_results: Annotated[int | None, Query(alias="maxResults", description=size_words())] = None,
) -> int:
    return page_size(max_results)


PageSize = Annotated[int, Depends(_page_size)]
