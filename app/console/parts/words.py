"""Numbers, sizes and times as people read them; the filters of the templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
LONGEST_TEXT: Final = 200


def counted(number: int | None) -> str:
    """Return a whole number in groups of three digits, with thin spaces; a dash for none."""
    return "–" if number is None else f"{number:,}".replace(",", "\u2009")


def many(number: int, noun: str) -> str:
    """So many of something."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{counted(number)} {noun if number == 1 else plural}"


def sized(size: int) -> str:
    """Bytes in the largest unit of which there is one."""
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
    """Return a number to three digits, in groups of three; more where it is larger."""
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


def aged(moment: datetime | None) -> str:
    """Return how long ago; a dash for never."""
    return "–" if moment is None else spanned((datetime.now(UTC) - moment).total_seconds())


def left(moment: datetime | None) -> str:
    """Return how long it is until then."""
    seconds = 0.0 if moment is None else (moment - datetime.now(UTC)).total_seconds()
    return f"for {spanned(seconds)} more" if seconds > 0 else "over: any worker may take it"


def clock(at: float) -> str:
    """Return the time of the day, UTC, of so many seconds since 1970."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")


def timed(moment: datetime | None) -> str:
    """Return a time to the second, UTC."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


def query(asked: Mapping[str, Any]) -> str:
    """Return what an address asks, with several values of a name where there are several."""
    return urlencode(asked, doseq=True)


def cut(value: object, most: int = LONGEST_TEXT) -> str:
    """Return the beginning of a long text, and how much there is of it."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}… ({counted(len(text))} characters)"


def shown(value: Any) -> str:
    """Return a value of a column on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "counted": counted,
    "many": many,
    "sized": sized,
    "spanned": spanned,
    "briefly": briefly,
    "numbered": numbered,
    "aged": aged,
    "left": left,
    "clock": clock,
    "timed": timed,
    "segment": segment,
    "query": query,
    "cut": cut,
    "shown": shown,
}
