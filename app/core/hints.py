"""Names in messages: the one most similar to an unknown word, and the first of many."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

# Two names are compared in a time that grows with the product of their lengths, and hostile names make the most of it.
LONGEST_COMPARED: Final = 64
MOST_COMPARED: Final = 500
MOST_NAMED: Final = 20
LONGEST_SHOWN: Final = 300


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` that is most like ``word``; None if none is close.

    Long names are skipped, and only the first ``MOST_COMPARED`` are compared.
    """
    if len(word) > LONGEST_COMPARED:
        return None
    compared = (name for name in islice(known, MOST_COMPARED) if len(name) <= LONGEST_COMPARED)
    near = difflib.get_close_matches(word, compared, n=1)
    return near[0] if near else None


def some_of(names: Collection[str]) -> str:
    """Return the names in a row, and of more than 20 how many more there are."""
    shown = ", ".join(cut(name) for name in islice(names, MOST_NAMED))
    more = len(names) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def printable(text: str) -> str:
    """Return a text of a request as answers can carry it: half a surrogate pair becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def cut(text: str) -> str:
    """Return a text of a request as a message may show it: no longer than 300 characters."""
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
