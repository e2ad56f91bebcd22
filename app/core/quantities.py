"""Numbers, sizes and spans of time as people read them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def counted(number: int | None) -> str:
    """Return a whole number in groups of three digits, with thin spaces; a dash for none."""
    return "–" if number is None else f"{number:,}".replace(",", "\u2009")


def many(number: int, noun: str) -> str:
    """So many of something."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{counted(number)} {noun if number == 1 else plural}"


def sized(size: int) -> str:
    """Return bytes in the largest unit of which there is one."""
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def spanned(seconds: float) -> str:
    """Return how long, in one or two units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} d"


def numbered(number: float) -> str:
    """Return a number with three significant digits; from 100 on all whole digits, in groups of three."""
    if number == 0 or number >= 100:
        return counted(round(number))
    return f"{number:.3g}" if number >= 0.001 else "< 0.001"


def briefly(seconds: float) -> str:
    """Return a time that may be short: to three digits, in the unit in which it is 1 at least."""
    if seconds == 0:
        return "0"
    if seconds < 1:
        return f"{numbered(seconds * 1000)} ms"
    return f"{numbered(seconds)} s" if seconds < 60 else spanned(seconds)
