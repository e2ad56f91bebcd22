"""Repairs of faulty table declarations: a word spelled right, an option removed, a key added.

They are candidates: ``drafts`` offers only those that leave fewer faults. A new repair is one entry of ``REPAIRS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from app.core.errors import FaultCode, Violation
from app.core.functions.entries import ALIASES, FUNCTIONS
from app.core.hints import nearest
from app.core.table.options.entries import (
    FALLBACK_KEYS,
    FIELD_OPTIONS,
    TABLE_OPTIONS,
    AbsentColumns,
    ChangelogProducer,
    Consistency,
    Integers,
    MergeEngine,
    SortOrder,
)
from app.core.types.kinds import Kind

_ENUMS: Final[tuple[type[StrEnum], ...]] = (
    MergeEngine,
    SortOrder,
    ChangelogProducer,
    AbsentColumns,
    Consistency,
    Integers,
)
_VALUES: Final = (*FUNCTIONS, *ALIASES, *(member.value for enum in _ENUMS for member in enum), "true", "false")
# At most this many words are tried at the place of a fault.
MOST_WORDS: Final = 20
_WORD: Final = re.compile(r"[\w.-]+")
_FIELDS: Final = re.compile(r"fields\.(.+)\.([\w-]+)")
_FIRST_COLUMN: Final = re.compile(r"CREATE\s+TABLE\b[^(]*\(\s*(`(?:[^`]|``)+`|\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Repair:
    """A repaired text, and a description of the change."""

    label: str
    text: str


Tries = Callable[[str, Violation], Iterator[Repair]]


def repairs_of(text: str, fault: Violation) -> Iterator[Repair]:
    """Yield the repairs of ``fault`` in ``text``, the likeliest first."""
    for tries in REPAIRS:
        yield from tries(text, fault)


def _respelt_key(text: str, fault: Violation) -> Iterator[Repair]:
    key = fault.about.option
    if not key or fault.code is not FaultCode.UNKNOWN_OPTION:
        return
    of_field = _FIELDS.fullmatch(key)
    if of_field is not None:
        suffix = nearest(of_field[2], FIELD_OPTIONS)
        near = None if suffix is None else f"fields.{of_field[1]}.{suffix}"
    else:
        near = nearest(key, [*TABLE_OPTIONS, *FALLBACK_KEYS])
    pair = _pair(text, key)
    if near is not None and pair is not None:
        yield _replaced(text, pair.start("key"), pair.end("key"), near)


def _respelt_value(text: str, fault: Violation) -> Iterator[Repair]:
    pair = _pair(text, fault.about.option) if fault.about.option else None
    if pair is None:
        return
    known = (*_VALUES, *_columns(text))
    for word in islice(_WORD.finditer(text, pair.start("value"), pair.end("value")), MOST_WORDS):
        near = nearest(word[0], known)
        if near is not None and near != word[0]:
            yield _replaced(text, word.start(), word.end(), near)


def _respelt_word(text: str, fault: Violation) -> Iterator[Repair]:
    """Yield the text with another type or column, at the place of the fault or after the bracket or quote there."""
    if fault.about.offset is None or fault.about.option:
        return
    line = text[fault.about.offset :].partition("\n")[0]
    of_type = fault.code is FaultCode.UNKNOWN_TYPE
    known = [kind.value for kind in Kind] if of_type else _columns(text)
    for word in islice(_WORD.finditer(line), MOST_WORDS):
        spelling = word[0].upper() if of_type else word[0]
        near = nearest(spelling, [name for name in known if name != word[0]])
        if near is not None:
            yield _replaced(text, fault.about.offset + word.start(), fault.about.offset + word.end(), near)
            return


def _without_option(text: str, fault: Violation) -> Iterator[Repair]:
    pair = _pair(text, fault.about.option) if fault.about.option else None
    if pair is None:
        return
    start, end = pair.start(), pair.end()
    after = re.compile(r"\s*,[ \t]*\n?").match(text, end)
    if after is not None:
        end = after.end()
    else:
        start = len(text[:start].rstrip().removesuffix(","))
    yield Repair(f"Remove the option {fault.about.option}", text[:start] + text[end:])


def _with_key(text: str, fault: Violation) -> Iterator[Repair]:
    """Yield the text with the first column as the primary key, in Flink's SQL."""
    first = _FIRST_COLUMN.search(text)
    if fault.code is not FaultCode.MISSING_PRIMARY_KEY or first is None:
        return
    end = _closing(text, text.index("(", first.start()))
    if end is not None:
        body = text[:end].rstrip()
        key = f"PRIMARY KEY ({first[1]}) NOT ENFORCED"
        yield Repair(f"Make {first[1]} the primary key", f"{body},\n  {key}\n{text[end:]}")


REPAIRS: Final[tuple[Tries, ...]] = (_respelt_key, _respelt_value, _respelt_word, _with_key, _without_option)


def _replaced(text: str, start: int, end: int, word: str) -> Repair:
    return Repair(f"Write {word} for {text[start:end]}", text[:start] + word + text[end:])


def _pair(text: str, key: str) -> re.Match[str] | None:
    """Return the match of an option and its value, in SQL or in JSON; None if the text has no such option."""
    quoted = rf"(?P<q>['\"])(?P<key>{re.escape(key)})(?P=q)\s*[=:]\s*(?P<v>['\"]?)(?P<value>[^'\"\n]*)(?P=v)"
    return re.search(quoted, text)


def _columns(text: str) -> list[str]:
    """Return words that may be column names: those before another word."""
    named = re.findall(r"(?:[(,]\s*`?(\w+)`?\s+[A-Za-z]|\"name\"\s*:\s*\"([^\"\n]+)\")", text)
    return [one or other for one, other in named if (one or other).upper() not in ("PRIMARY", "CONSTRAINT", "UNIQUE")]


def _closing(text: str, place: int) -> int | None:
    """Return the place of the closing bracket for the one at ``place``."""
    depth = 0
    for lexeme in re.compile(r"'(?:[^']|'')*'|`[^`]*`|--[^\n]*|[()]").finditer(text, place):
        depth += {"(": 1, ")": -1}.get(lexeme[0], 0)
        if depth == 0:
            return lexeme.start()
    return None
