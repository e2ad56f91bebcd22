"""``keyfold scan`` and ``keyfold count``: many rows, and their number."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

import typer

from app.cli.client.endings import usage
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import many, report, say, say_json, say_table

commands = typer.Typer()
SHOWN_ROWS: Final = 100  # rows at a terminal, unless there is a limit
# Rows of a page of the service.
PAGE_ROWS: Final = 100_000
Params = list[tuple[str, str]]
Filters = Annotated[
    list[str] | None, typer.Option("--filter", help="status.eq.packed; may be given again, all must be met")
]
Version = Annotated[str | None, typer.Option("--snapshot", help="a snapshot's number or a tag: the rows as they were")]
Merged = Annotated[bool, typer.Option("--merged", help="leave out records that are not merged yet")]


class ScanFormat(StrEnum):
    """The output format of rows."""

    TABLE = "table"
    CSV = "csv"
    NDJSON = "ndjson"


_ACCEPT = {ScanFormat.CSV: "text/csv", ScanFormat.NDJSON: "application/x-ndjson"}


@commands.command()
def scan(
    table: TableName,
    form: Annotated[
        ScanFormat | None, typer.Option("--format", help="[default: table at a terminal, else ndjson]")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="those to show, with commas")] = None,
    filters: Filters = None,
    limit: Annotated[int | None, typer.Option(min=1, help="at most so many rows  [default: all; 100 as table]")] = None,
    snapshot: Version = None,
    merged: Merged = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Print the rows of a table as of one moment."""
    shown = form or (ScanFormat.TABLE if sys.stdout.isatty() else ScanFormat.NDJSON)
    params = scan_params(filters, columns=columns, snapshot=snapshot, consistency="merged" if merged else None)
    with Service.at(url, token_file) as service:
        path = path_of(table, "/rows:scan")
        if shown is ScanFormat.TABLE:
            _show(service, path, params, limit or SHOWN_ROWS)
        elif limit is None:
            _stream(service, path, params, shown)
        else:
            _page(service, path, params, shown, limit)


def scan_params(filters: list[str] | None, **optional: str | None) -> Params:
    """Return the query parameters of a scan, without the options that were not given."""
    given = [(name, one) for name, one in optional.items() if one is not None]
    return [*given, *(("filter", text) for text in filters or ())]


@commands.command()
def count(
    table: TableName,
    filters: Filters = None,
    snapshot: Version = None,
    merged: Merged = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Count the rows of a table."""
    params = scan_params(filters, exact="true", snapshot=snapshot, consistency="merged" if merged else None)
    with Service.at(url, token_file) as service:
        counted = service.json("GET", path_of(table, "/rows:count"), params=params)
    if as_json:
        say_json(counted)
    else:
        say(str(counted["count"]))


def _stream(service: Service, path: str, params: Params, form: ScanFormat) -> None:
    with service.streamed(path, params=params, headers={"Accept": _ACCEPT[form]}) as answer:
        for piece in answer.iter_bytes():
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _page(service: Service, path: str, params: Params, form: ScanFormat, limit: int) -> None:
    """Return the rows of one page of a bounded scan, which the service limits."""
    if limit > PAGE_ROWS:
        raise usage(f"--limit {limit} is more than {PAGE_ROWS}", "  → leave it out for all rows, or pipe them to head")
    answer = service.ask("GET", path, params=[*params, ("limit", str(limit))], headers={"Accept": _ACCEPT[form]})
    sys.stdout.buffer.write(answer.content)
    sys.stdout.buffer.flush()


def _show(service: Service, path: str, params: Params, limit: int) -> None:
    if limit > PAGE_ROWS:
        raise usage(f"--limit {limit} is more than {PAGE_ROWS}", "  → write --format ndjson")
    headers = {"Accept": _ACCEPT[ScanFormat.NDJSON]}
    answer = service.ask("GET", path, params=[*params, ("limit", str(limit))], headers=headers)
    rows = list(_rows(answer.text))
    if rows:
        say_table(list(rows[0]), [list(row.values()) for row in rows])
    more = "Keyfold-Next-Page" in answer.headers
    report(f"{many(len(rows), 'row')}{'; there are more: --limit' if more else ''}")


def _rows(text: str) -> Iterator[dict[str, object]]:
    for line in text.split("\n"):
        if line:
            yield json.loads(line)
