"""Where the members of a JSON text stand in it, for faults that name them by JSON pointers (RFC 6901)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.core.errors import escape_pointer

_LEXEME = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+)')


@dataclass(frozen=True)
class Places:
    """The offset of every value by its pointer."""

    offsets: Mapping[str, int]

    def nearest(self, pointer: str) -> int | None:
        """Where the value stands, or what it should be a member of; None in a text that was not understood.

        Faults of schemas point into ``{identifier, schema}``; a text may be the schema alone.
        """
        for asked in (pointer, pointer.removeprefix("/schema")):
            if asked in self.offsets:
                return self.offsets[asked]
        if pointer.startswith("/identifier") or not pointer:
            return None
        return self.nearest(pointer.rpartition("/")[0])


@dataclass
class _Open:
    """An object or a list that is being read."""

    pointer: str
    is_list: bool
    index: int = 0
    key: str | None = None


@dataclass
class _Reading:
    offsets: dict[str, int] = field(default_factory=dict)
    inside: list[_Open] = field(default_factory=list)

    def take(self, lexeme: str, offset: int) -> None:
        """One lexeme. Raises ``ValueError`` for what is no JSON."""
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
            self._value(lexeme, offset, top)

    def _value(self, lexeme: str, offset: int, top: _Open | None) -> None:
        step = "" if top is None else f"/{top.index}" if top.is_list else f"/{escape_pointer(top.key or '')}"
        pointer = f"{top.pointer if top else ''}{step}"
        self.offsets.setdefault(pointer, offset)
        if lexeme in "{[":
            self.inside.append(_Open(pointer, lexeme == "["))


def places_in(text: str) -> Places:
    """The places of a JSON text, as far as it is one."""
    reading = _Reading()
    try:
        for lexeme, offset in _lexemes(text):
            reading.take(lexeme, offset)
    except (ValueError, IndexError):
        pass  # what was read until then is where it is
    return Places(reading.offsets)


def _lexemes(text: str) -> Iterator[tuple[str, int]]:
    place = 0
    while (found := _LEXEME.match(text, place)) is not None:
        yield found[1], found.start(1)
        place = found.end()
