"""The places of members in a JSON text, for faults that name them by JSON pointers (RFC 6901)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.core.errors import escape_pointer

# Without going back into a text that does not end: that would take memory for each of its characters.
_LEXEME: Final = re.compile(r'\s*+("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++)', re.DOTALL)


@dataclass(frozen=True)
class Places:
    """The offsets of the wanted values, and of their parents, by JSON pointer."""

    offsets: Mapping[str, int]

    def nearest(self, pointer: str) -> int | None:
        """Return the place of the value, or of the nearest parent; None if the text could not be parsed.

        Faults of schemas point into ``{identifier, schema}``; a text may be the schema alone.
        """
        for wanted in (pointer, pointer.removeprefix("/schema")):
            if wanted in self.offsets:
                return self.offsets[wanted]
        if pointer.startswith("/identifier") or not pointer:
            return None
        return self.nearest(pointer.rpartition("/")[0])


@dataclass
class _Wanted:
    """A value that is wanted, or has wanted members."""

    pointer: str = ""
    members: dict[str, _Wanted] = field(default_factory=dict)

    def add(self, pointer: str) -> None:
        """Add the value of ``pointer`` to the wanted ones."""
        wanted = self
        for step in pointer.split("/")[1:]:
            wanted = wanted.members.setdefault(step, _Wanted(f"{wanted.pointer}/{step}"))

    def count(self) -> int:
        """Return the number of wanted values."""
        return 1 + sum(member.count() for member in self.members.values())


@dataclass
class _Open:
    """An object or a list that is being read."""

    wanted: _Wanted
    is_list: bool
    index: int = 0
    key: str | None = None


@dataclass
class _Reading:
    """The state of the parser. Of unwanted values only the depth is kept: each character of a text
    may open a bracket.
    """

    root: _Wanted
    offsets: dict[str, int] = field(default_factory=dict)
    inside: list[_Open] = field(default_factory=list)
    unwanted: int = 0  # brackets that are open inside an unwanted value

    def take(self, lexeme: str, offset: int) -> None:
        """Process one lexeme. Raise ``ValueError`` or ``IndexError`` if the text is not JSON."""
        if self.unwanted:
            self.unwanted += 1 if lexeme in "{[" else -1 if lexeme in "}]" else 0
            return
        top = self.inside[-1] if self.inside else None
        if lexeme in "}]":
            self.inside.pop()
        elif lexeme == "," and top is not None:
            top.index, top.key = top.index + 1, None
        elif lexeme == ":":
            pass
        elif top is not None and not top.is_list and top.key is None:
            top.key = str(json.loads(lexeme))
        else:
            self._value(lexeme, offset, self._wanted_at(top))

    def _wanted_at(self, top: _Open | None) -> _Wanted | None:
        if top is None:
            return self.root
        return top.wanted.members.get(str(top.index) if top.is_list else escape_pointer(top.key or ""))

    def _value(self, lexeme: str, offset: int, wanted: _Wanted | None) -> None:
        if wanted is not None:
            self.offsets.setdefault(wanted.pointer, offset)
        if lexeme not in "{[":
            return
        if wanted is None:
            self.unwanted = 1
        else:
            self.inside.append(_Open(wanted, lexeme == "["))


def places_in(text: str, pointers: Iterable[str]) -> Places:
    """Return the places of the values that ``pointers`` name, up to the first error of the JSON ``text``."""
    root = _Wanted()
    for pointer in pointers:
        root.add(pointer)
        root.add(pointer.removeprefix("/schema"))
    reading, count = _Reading(root), root.count()
    try:
        for lexeme, offset in _lexemes(text):
            reading.take(lexeme, offset)
            if len(reading.offsets) == count:
                break
    except (ValueError, IndexError):
        pass  # what was read until then is where it is
    return Places(reading.offsets)


def _lexemes(text: str) -> Iterator[tuple[str, int]]:
    place = 0
    while (lexeme := _LEXEME.match(text, place)) is not None:
        yield lexeme[1], lexeme.start(1)
        place = lexeme.end()
