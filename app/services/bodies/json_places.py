"""Where members of a JSON text stand in it, for faults that name them by JSON pointers (RFC 6901)."""

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
    """The offsets of the values that were asked for, and of those that they are members of, by their pointers."""

    offsets: Mapping[str, int]

    def nearest(self, pointer: str) -> int | None:
        """Return where the value stands, or what it should be a member of; None in a text that was not understood.

        Faults of schemas point into ``{identifier, schema}``; a text may be the schema alone.
        """
        for asked in (pointer, pointer.removeprefix("/schema")):
            if asked in self.offsets:
                return self.offsets[asked]
        if pointer.startswith("/identifier") or not pointer:
            return None
        return self.nearest(pointer.rpartition("/")[0])


@dataclass
class _Asked:
    """A value that was asked for, or has members that were."""

    pointer: str = ""
    members: dict[str, _Asked] = field(default_factory=dict)

    def add(self, pointer: str) -> None:
        """Ask for the value of ``pointer``, too."""
        asked = self
        for step in pointer.split("/")[1:]:
            asked = asked.members.setdefault(step, _Asked(f"{asked.pointer}/{step}"))

    def count(self) -> int:
        """Return how many values were asked for."""
        return 1 + sum(one.count() for one in self.members.values())


@dataclass
class _Open:
    """An object or a list that is being read."""

    asked: _Asked
    is_list: bool
    index: int = 0
    key: str | None = None


@dataclass
class _Reading:
    """Of what no one asked for only the depth is kept: texts may open a bracket with each of their characters."""

    root: _Asked
    offsets: dict[str, int] = field(default_factory=dict)
    inside: list[_Open] = field(default_factory=list)
    unasked: int = 0  # brackets that are open inside a value that no one asked for

    def take(self, lexeme: str, offset: int) -> None:
        """One lexeme. Raise ``ValueError`` or ``IndexError`` for what is no JSON."""
        if self.unasked:
            self.unasked += 1 if lexeme in "{[" else -1 if lexeme in "}]" else 0
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
            self._value(lexeme, offset, self._asked_at(top))

    def _asked_at(self, top: _Open | None) -> _Asked | None:
        if top is None:
            return self.root
        return top.asked.members.get(str(top.index) if top.is_list else escape_pointer(top.key or ""))

    def _value(self, lexeme: str, offset: int, asked: _Asked | None) -> None:
        if asked is not None:
            self.offsets.setdefault(asked.pointer, offset)
        if lexeme not in "{[":
            return
        if asked is None:
            self.unasked = 1
        else:
            self.inside.append(_Open(asked, lexeme == "["))


def places_in(text: str, pointers: Iterable[str]) -> Places:
    """Return the places of the values that ``pointers`` name, as far as ``text`` is JSON."""
    root = _Asked()
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
    while (found := _LEXEME.match(text, place)) is not None:
        yield found[1], found.start(1)
        place = found.end()
