"""The filters of the templates: quantities, times, names in addresses, values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from app.core.quantities import briefly, counted, many, numbered, sized, spanned
from app.services.explaining.explained import RecordPlace

LONGEST_TEXT: Final = 200


def aged(moment: datetime | None) -> str:
    """Return the time since then; a dash for never."""
    return "–" if moment is None else spanned((datetime.now(UTC) - moment).total_seconds())


def left(moment: datetime | None) -> str:
    """Return the time until then."""
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


def query(parameters: Mapping[str, Any]) -> str:
    """Return the query string of an address; a name with several values occurs several times."""
    return urlencode(parameters, doseq=True)


def cut(value: object, most: int = LONGEST_TEXT) -> str:
    """Return the beginning of a long text, and its length."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}… ({counted(len(text))} characters)"


def cut_short(text: str, most: int = 24) -> str:
    """Return the beginning of a text, short enough for a line with other texts."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown(value: Any) -> str:
    """Return a value of a column on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def nth(position: int) -> str:
    """Return the ordinal of ``position``: positions count from 0, people from 1."""
    return counted(position + 1)


def placed(record: RecordPlace) -> str:
    """Return a record in words: its batch, and its number in it."""
    return f"batch {record.number}, record {nth(record.position)}"


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
    "cut_short": cut_short,
    "shown": shown,
    "nth": nth,
    "placed": placed,
}
