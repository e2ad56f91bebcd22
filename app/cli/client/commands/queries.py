"""``keyfold sql``: a SELECT over tables of a service, which DuckDB runs on this machine."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic_core import to_json

from app.cli.client.commands.scans import SHOWN_ROWS, Merged, ScanFormat
from app.cli.client.endings import usage
from app.cli.client.service import Service
from app.cli.client.settings import TokenFile, Url
from app.cli.client.shown import many, report, say_table
from keyfold_client.sync.table import Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

commands = typer.Typer()
_ROWS_AT_ONCE: Final = 10_000
Name = tuple[str, str]


@commands.command("sql")
def query(
    select: Annotated[str, typer.Argument(metavar="SELECT", help="a SELECT of DuckDB's SQL over DATABASE.TABLE")],
    database: Annotated[str | None, typer.Option("--database", "-d", help="of tables that name none")] = None,
    form: Annotated[
        ScanFormat | None, typer.Option("--format", help="[default: table at a terminal, else ndjson]")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="at most so many rows  [default: all; 100 as table]")] = None,
    merged: Merged = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Query tables with DuckDB, on this machine: each table is read once, completely, in its present state. Nothing is
    written.

    It needs DuckDB: pip install 'keyfold[sql]'.
    """
    try:
        import duckdb  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise usage("keyfold sql needs DuckDB", "  → pip install 'keyfold[sql]'") from error
    shown = form or (ScanFormat.TABLE if sys.stdout.isatty() else ScanFormat.NDJSON)
    with TemporaryDirectory(prefix="keyfold-sql-") as folder, Service.at(url, token_file) as service:
        try:
            with duckdb.connect(str(Path(folder, "tables.db"))) as opened:
                for name in _named_tables(opened, select, database):
                    _read(opened, service, *name, merged=merged)
                if database is not None:
                    opened.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(database)}; USE {_quoted(database)}")
                _say(opened, select.rstrip().removesuffix(";"), shown, limit)
        except duckdb.Error as error:
            raise usage(str(error)) from error


def _named_tables(opened: DuckDBPyConnection, select: str, database: str | None) -> set[Name]:
    """Return the tables that a statement names. Raise ``Failure``."""
    [text] = opened.execute("SELECT json_serialize_sql(?::VARCHAR)", [select]).fetchall()[0]
    parsed = json.loads(text)
    if parsed["error"] and parsed["error_type"] == "parser":
        raise usage(parsed["error_message"])
    if parsed["error"] or len(parsed["statements"]) != 1:
        raise usage("one SELECT is expected; it may have WITH, subqueries and joins, no PIVOT")
    defined = {expression["key"] for node in _nodes(parsed) for expression in node.get("cte_map", {}).get("map", [])}
    names: set[Name] = set()
    for node in _nodes(parsed):
        if node.get("type") != "BASE_TABLE":
            continue
        catalog, schema, table = node["catalog_name"], node["schema_name"], node["table_name"]
        if catalog:
            raise usage(f"{catalog}.{schema}.{table}: a table's name is DATABASE.TABLE")
        if schema:
            names.add((schema, table))
        elif table not in defined and database is not None:
            names.add((database, table))
        elif table not in defined and "." not in table:  # a quoted file is for DuckDB to read
            raise usage(f"{table}: of which database?", f"  → write DATABASE.{table}, or name it with --database")
    return names


def _nodes(parsed: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a parsed statement, at any depth."""
    if isinstance(parsed, dict):
        yield parsed
    for inner in parsed.values() if isinstance(parsed, dict) else parsed if isinstance(parsed, list) else ():
        yield from _nodes(inner)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _read(opened: DuckDBPyConnection, service: Service, database: str, table: str, *, merged: bool) -> None:
    """Copy a table to the disk: DuckDB may read it several times, and all of it is from one snapshot. Raise the
    refusals of the service.
    """
    scan = Table(service, database, table).scan(consistency="merged" if merged else None)
    opened.register("_rows", scan.reader())
    made = f"{_quoted(database)}.{_quoted(table)}"
    opened.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(database)}; CREATE TABLE {made} AS FROM _rows")
    opened.unregister("_rows")


def _say(opened: DuckDBPyConnection, select: str, form: ScanFormat, limit: int | None) -> None:
    texts = "SELECT COLUMNS(*)::VARCHAR " if form is ScanFormat.CSV else ""
    most = "" if limit is None or form is ScanFormat.TABLE else f" LIMIT {limit}"
    result = opened.execute(f"{texts}FROM ({select}\n){most}")
    columns = [column[0] for column in result.description or ()]
    if form is ScanFormat.TABLE:
        shown = limit or SHOWN_ROWS
        rows = result.fetchmany(shown + 1)
        say_table(columns, [[_shown(value) for value in row] for row in rows[:shown]])
        report(f"{many(len(rows[:shown]), 'row')}{'; there are more: --limit' if len(rows) > shown else ''}")
        return
    lines = csv.writer(sys.stdout, lineterminator="\n")
    if form is ScanFormat.CSV:
        lines.writerow(columns)
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        if form is ScanFormat.CSV:
            lines.writerows(rows)
        else:
            sys.stdout.writelines(f"{_json(dict(zip(columns, row, strict=True)))}\n" for row in rows)


def _json(value: object) -> str:
    """Return a value as JSON: decimals, times and bytes as text, as the service has them."""
    return to_json(value, bytes_mode="base64", inf_nan_mode="strings", fallback=str).decode()


def _shown(value: Any) -> Any:
    """Return a value for a printed table: text unchanged, others as JSON."""
    return value if value is None or isinstance(value, str) else json.loads(_json(value))
