"""The nearest existing page for an address that is unknown, or names something that does not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Final
from urllib.parse import quote

from app.console.parts.trails import Step, trail
from app.console.site.visits import Page, Visit
from app.core.errors import KeyfoldError, NotFound, Resource
from app.core.hints import LONGEST_COMPARED
from app.services.operating.nearest_names import nearest_database, nearest_table

_LEAST_LIKENESS: Final = 0.6


def nearest_step(visit: Visit, error: KeyfoldError) -> Step | None:
    """Return the nearest name that the visitor may see, and its page; None if nothing is near."""
    finds = _FINDS.get(error.resource_type or "") if isinstance(error, NotFound) else None
    if finds is not None:
        with suppress(KeyfoldError):  # the page says what is wrong also without it
            return finds(visit)
    return None


def nearest_page_step(path: str, pages: Iterable[Page]) -> Step | None:
    """Return the page whose address is nearest to ``path``, with the names that ``path`` has. It is called by its
    address.
    """
    address = path.rstrip("/").split("/")
    likeness: dict[str, float] = {}
    for page in pages:
        if page.whole and page.method == "GET":
            near, ratio = _filled(address, page.path.split("/"))
            likeness[near] = max(ratio, likeness.get(near, 0))
    best = max(likeness, key=lambda address: likeness[address], default="")
    return (quote(best), quote(best)) if likeness.get(best, 0) >= _LEAST_LIKENESS else None


def _filled(address: Sequence[str], pattern: Sequence[str]) -> tuple[str, float]:
    """Return the address of ``pattern`` with the names that ``address`` has in their places, and how like the two are.

    Only the parts that differ are compared; where one address is longer, only the last ones.
    """
    if len(address) != len(pattern):
        names = any(part.startswith("{") for part in pattern)
        return "/".join(pattern), 0.0 if names else _likeness(address[-1], pattern[-1])
    filled = [given if expected.startswith("{") else expected for expected, given in zip(pattern, address, strict=True)]
    differing = [(given, expected) for given, expected in zip(address, filled, strict=True) if given != expected]
    return "/".join(filled), _likeness(
        "/".join(one for one, _ in differing), "/".join(expected for _, expected in differing)
    )


def _likeness(word: str, known: str) -> float:
    """Return how similar two words are, from 0 to 1."""
    return SequenceMatcher(None, word, known).ratio() if len(word) <= LONGEST_COMPARED else 0.0


def nearest_database_step(visit: Visit, name: str) -> Step | None:
    """Return the database whose name is nearest to ``name``, and its page."""
    with visit.parts.database.reading() as repository:
        near = nearest_database(repository, visit.grant.scope, name)
    return None if near is None else trail("", near)[1]


def _database(visit: Visit) -> Step | None:
    return nearest_database_step(visit, visit.names.get("database", ""))


def _table(visit: Visit) -> Step | None:
    database, name = visit.names.get("database", ""), visit.names.get("table", "")
    with visit.parts.database.reading() as repository:
        near = nearest_table(repository, visit.grant.scope, database, name)
    return None if near is None else trail("", database, near)[2]


_FINDS: Final[Mapping[str, Callable[[Visit], Step | None]]] = {
    Resource.DATABASE.value: _database,
    Resource.TABLE.value: _table,
}
