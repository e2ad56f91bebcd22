"""How the text of an option value is read; every reader raises ``ValueError`` with the fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final


def boolean(text: str) -> bool:
    """Return the boolean that ``true`` or ``false`` says."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.strip().lower() == "true"


def whole_number(text: str) -> int:
    """Return a whole number."""
    if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
        raise ValueError("write a whole number")
    return int(text)


def count(text: str) -> int:
    """Return a whole number from 1 to 2147483647."""
    number = whole_number(text)
    if not 1 <= number < 2**31:
        raise ValueError("write a whole number from 1 to 2147483647")
    return number


_UNITS = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "second": 1,
    "min": 60,
    "m": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}


def duration(text: str) -> timedelta:
    """Return a time with its unit; milliseconds without one."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    unit = (match[2] or "ms") if match else ""
    seconds = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
    if match is None or seconds is None:
        raise ValueError("write a number and a unit: 500 ms, 10 s, 5 min, 1 h, 2 d")
    try:
        return timedelta(seconds=float(match[1]) * seconds)
    except OverflowError:
        raise ValueError("write a shorter time") from None


def horizon(text: str) -> int | timedelta:
    """Return a whole number from 0 on, or a time with its unit: a distance of numbers, or of times."""
    if not re.fullmatch(r"\s*[0-9]+\s*", text):
        try:
            return duration(text if re.search("[a-z]", text.lower()) else "")
        except ValueError:
            raise ValueError("write a whole number, or a number and a unit: 1000, 10 s, 5 min, 1 h, 7 d") from None
    if int(text) >= 2**63:
        raise ValueError("write a number below 9223372036854775808")
    return int(text)


def names(text: str) -> tuple[str, ...]:
    """Return the comma-separated names of an option value; white space around a name is dropped (Q27)."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


_BYTES: Mapping[str, int] = {
    "": 1,
    "b": 1,
    "bytes": 1,
    **{letter + end: 1024**step for step, letter in enumerate("kmgt", 1) for end in ("", "b")},
}


def size(text: str) -> int:
    """Return the bytes of a text that is written as Paimon's MemorySize."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _BYTES or not int(match[1]):
        raise ValueError("write a number and a unit: 512 kb, 128 mb, 1 gb")
    return int(match[1]) * _BYTES[match[2]]


def percent(text: str) -> int:
    """Return a whole number of percent, not below 0."""
    number = whole_number(text)
    if not 0 <= number < 2**31:
        raise ValueError("write a whole number of percent, not below 0")
    return number


_LETTERS: Mapping[str, str] = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def time_format(formatter: str) -> str:
    """Return a Java date pattern as Python's."""
    parts = re.findall(r"'([^']*)'|([A-Za-z])(\2*)|([^A-Za-z']+)", formatter)
    if unknown := [letter + more for _, letter, more, _ in parts if letter and letter + more not in _LETTERS]:
        raise ValueError(f"write it with {', '.join(_LETTERS)} and text in quotes, not {unknown[0]}")
    return "".join(
        _LETTERS[letter + more] if letter else (quoted or literal).replace("%", "%%")
        for quoted, letter, more, literal in parts
    )


@dataclass(frozen=True)
class OneOf:
    """A reader of one of ``choices``, in any case."""

    choices: type[StrEnum]

    def __call__(self, text: str) -> StrEnum:
        """Return the value that ``text`` spells. Raise ``ValueError`` with the fix."""
        try:
            return self.choices(text.strip().lower())
        except ValueError:
            raise ValueError(f"write one of: {', '.join(self.choices)}") from None


_SPELLED: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def spelled_duration(time: timedelta) -> str:
    """Return a time as ``duration`` reads it, in the largest unit of which it is a whole number."""
    millis = time // timedelta(milliseconds=1)
    return next(
        (f"{millis // 1000 // by} {unit}" for by, unit in _SPELLED if millis % (1000 * by) == 0), f"{millis} ms"
    )


def spelled_size(number: int) -> str:
    """Return bytes as ``size`` reads them, in the largest unit of which they are a whole number."""
    units = ((1024**3, "gb"), (1024**2, "mb"), (1024, "kb"))
    return next((f"{number // by} {unit}" for by, unit in units if number % by == 0), f"{number} b")


WORDS: Final[Mapping[Callable[[str], object], str]] = {
    boolean: "true or false",
    whole_number: "a whole number",
    count: "a whole number from 1",
    percent: "a whole number of percent",
    duration: "a time: 10 s, 5 min, 7 d",
    horizon: "a whole number, or a time: 1000, 7 d",
    size: "a size: 512 kb, 128 mb, 1 gb",
    names: "names, separated by commas",
    time_format: "a date pattern",
    str.strip: "a text",
    str: "a text, with its spaces",
}
"""What each reader reads, in words. ``OneOf`` has its choices."""
