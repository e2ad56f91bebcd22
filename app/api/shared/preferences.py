"""Preferences of a request (RFC 7240), and the form of whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header, Query, Request

from app.core.table.options.entries import Integers

INTEGERS: Final[Mapping[str, Integers]] = {Integer.value: Integer for Integer in Integers}


def preference(prefer: str | None, name: str) -> str | None:
    """Return the value of a preference; None if it is absent."""
    for part in (prefer or "").split(","):
        key, _, value = part.split(";")[0].partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"')
    return None


@dataclass(frozen=True)
class Spelling:
    """The requested form of whole numbers: ``integers`` is None for the table's default; ``preferred``: it came with
    Prefer, so the answer confirms it.
    """

    integers: Integers | None = None
    preferred: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers that confirm an applied preference."""
        return {"Preference-Applied": f"integers={self.integers}"} if self.preferred else {}


USUAL: Final = Spelling()


def spelling(integers: Integers | None, prefer: str | None) -> Spelling:
    """Return the spelling that the parameter, or else the preference, requests; a preference that is not understood is
    ignored.
    """
    if integers is not None or not prefer:
        return USUAL if integers is None else Spelling(integers)
    preferred = INTEGERS.get((preference(prefer, "integers") or "").lower())
    return USUAL if preferred is None else Spelling(preferred, preferred=True)


_WORDS = (
    "BIGINT as text, which JavaScript reads without loss beyond 2^53; by default as Prefer or the table's option says"
)


async def _spelling(
    request: Request,
    integers: Annotated[Integers | None, Query(description=_WORDS)] = None,
    _: Annotated[str | None, Header(alias="prefer", description="`integers=text`: the same, as a preference")] = None,
) -> Spelling:
    return spelling(integers, ",".join(request.headers.getlist("prefer")))


SpellingDep = Annotated[Spelling, Depends(_spelling)]
