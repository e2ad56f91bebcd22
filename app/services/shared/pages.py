"""Pages of lists: requests and answers. All lists use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Generic, TypeVar

from app.core.errors import FaultCode, Invalid, Violation

Item = TypeVar("Item")
# Largest input of a page; the Python values made of it take several times as much.
MOST_PAGE_BYTES = 8 * 2**20
LONGEST_PATTERN = 1000  # a name has 255 characters, each of which may be escaped


@dataclass(frozen=True)
class PageRequest:
    """At most ``limit`` items, those after the one that ``token`` names: the ``next_token`` of the page before."""

    limit: int
    token: str | None = None

    @property
    def after(self) -> str | None:
        """The last item of the page before, as ``page_of`` named it; None on the first page."""
        return self.token or None

    @property
    def after_number(self) -> int | None:
        """``after`` as a number, for items that are named by numbers. Raise ``Invalid``."""
        if self.after is not None and not re.fullmatch("[0-9]{1,18}", self.after):
            raise Invalid("the page token is not from this list; send a nextPageToken of it, or none")
        return None if self.after is None else int(self.after)

    @property
    def and_one_more(self) -> int:
        """How many items to look for: one more than fit shows that there is a next page."""
        return self.limit + 1


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Items in the order of their list; ``next_token`` requests the next page; None on the last one."""

    items: Sequence[Item]
    next_token: str | None


def page_of(rows: Sequence[Item], request: PageRequest, named: Callable[[Item], object]) -> Page[Item]:
    """Return the page of ``request``. ``rows`` begin with the page, and are longer if there are more items; ``named``
    returns the name of an item.
    """
    items = rows[: request.limit]
    return Page(items, str(named(items[-1])) if len(rows) > request.limit else None)


def fitting(sizes: Iterable[int], most: int = MOST_PAGE_BYTES) -> int:
    """Return how many of the first items, with these ``sizes``, fit into ``most``; at least one."""
    count = sum(1 for taken in accumulate(sizes) if taken <= most)
    return max(1, count)


def like(pattern: str | None) -> str | None:
    """Return a pattern of SQL's LIKE: ``%`` any text, ``_`` any character, a backslash takes the next one literally;
    None for every name.

    Raise ``Invalid`` for a pattern that is too long, and if it ends in a single backslash.
    """
    pattern = pattern or ""
    if len(pattern) > LONGEST_PATTERN:
        message = f"the pattern has {len(pattern)} characters, at most {LONGEST_PATTERN} are read"
        fault = Violation("", FaultCode.TOO_LONG, message, "send a shorter pattern: names have at most 255 characters")
        raise Invalid(message, violations=[fault])
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise Invalid(f"the pattern {pattern!r} ends in a single backslash; write two for a literal one")
    return pattern or None


def is_like(name: str, pattern: str | None) -> bool:
    """Return whether ``name`` is LIKE ``pattern``, which ``like`` has read."""
    if pattern is None:
        return True
    return _regex(pattern).fullmatch(name) is not None


@lru_cache(maxsize=64)
def _regex(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for ``pattern``. Each text between two % matches where it occurs first, without
    backtracking: no later match could succeed, and trying all of them would take exponential time.
    """
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    texts = [""]
    for part in parts:
        if part == "%":
            texts.append("")
        else:
            texts[-1] += "." if part == "_" else re.escape(part[-1])
    first, *others = texts
    if not others:
        return re.compile(first, re.DOTALL)
    between = "".join(f"(?>.*?{text})" for text in others[:-1] if text)
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)
