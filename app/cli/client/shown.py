"""The output of commands: tables and lines for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.core import quantities

_CONTROLS: Final = {number: repr(chr(number))[1:-1] for number in (*range(9), *range(11, 32), *range(127, 160))}
# Width of an output that is no terminal: no text is cut off.
_WIDE = 100_000


def plain(value: object) -> str:
    """Return a value as text. Control characters are escaped, so that they do not reach the terminal."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.translate(_CONTROLS)


def say(line: str) -> None:
    """Print a line of the result."""
    print(plain(line), flush=True)  # noqa: T201  # it is what the command is for


def report(line: str) -> None:
    """Print a line about the command's progress to standard error, separate from the result."""
    print(plain(line), file=sys.stderr, flush=True)  # noqa: T201  # the same


def as_line(value: Any) -> str:
    """Return a value as one line of JSON, in ASCII, so that every terminal can show it."""
    return json.dumps(value, separators=(",", ":"))


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(as_line(value), flush=True)  # noqa: T201  # the same


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with a header; narrow enough for a terminal, in full elsewhere."""
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(plain(column)))
    for row in rows:
        table.add_row(*(Text(plain(value), overflow="fold") for value in row))
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        print(line.rstrip(), flush=True)  # noqa: T201  # the same


def say_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values below each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:<{width}}  {plain(value)}".rstrip())


def many(number: int, noun: str) -> str:
    """Return a count with its noun; digits are grouped by spaces that any terminal shows."""
    return quantities.many(number, noun).replace("\u2009", " ")


def moment(millis: int | None) -> str:
    """Return a time of the service, epoch milliseconds, as text."""
    return "" if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
