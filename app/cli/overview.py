"""The texts of ``keyfold --help`` and ``--version``, without loading what the commands need: that takes a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

import typer

from app import __version__


class Command(NamedTuple):
    """A word of the command line."""

    module: str  # of ``app.cli``: what has the command in its ``commands``
    summary: str


# The one list of commands; a test compares the summaries with the commands' own.
COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command(
        "service",
        "Serve the API, with a merge worker and, unless configured otherwise, embedded Spark and SQLite.",
    ),
    "worker": Command(
        "service",
        "Run merges only, with any number of other workers and servers on one PostgreSQL catalog.",
    ),
    "migrate": Command(
        "catalog",
        "Create or upgrade the catalog database.",
    ),
    "verify": Command(
        "damage",
        "Check the catalog, read every file that it names, list what is damaged or missing; status 1 if anything is.",
    ),
    "backup": Command(
        "backups",
        "Back up catalog and files while the service runs; what an earlier backup has is not copied again.",
    ),
    "restore": Command(
        "backups",
        "Put a backup back, into a data folder (or database and warehouse) that holds nothing yet.",
    ),
    "check-spark": Command(
        "spark",
        "Merge and compact a small table on the Spark that is configured: status 1 and what is missing, "
        "if anything is.",
    ),
    "token": Command(
        "tokens",
        "API tokens: made, listed, revoked.",
    ),
    "load": Command(
        "client.commands.loads",
        "Post the records of files, in their order. Run the same command again after a break: what was "
        "posted is known by its content, and counts once.",
    ),
    "get": Command(
        "client.commands.rows",
        "Show the row of a key.",
    ),
    "put": Command(
        "client.commands.rows",
        "Post one record: the columns that it names, folded by the table's rules.",
    ),
    "delete": Command(
        "client.commands.rows",
        "Post a -D record for the row of a key.",
    ),
    "explain": Command(
        "client.commands.explain",
        "Say why a row shows what it shows: its records, what each did to each column, where each value came from.",
    ),
    "simulate": Command(
        "client.commands.explain",
        "Fold records without storing them: each row before and after, and what every record did.",
    ),
    "forget": Command(
        "client.commands.forget",
        "Take keys out of rows, snapshots, history and changelogs, for good.",
    ),
    "forgettings": Command(
        "client.commands.forget",
        "List what was forgotten of a table and what is to be, newest first.",
    ),
    "scan": Command(
        "client.commands.scans",
        "Write the rows of a table, all of one moment.",
    ),
    "count": Command(
        "client.commands.scans",
        "Count the rows of a table.",
    ),
    "export": Command(
        "client.commands.exports",
        "Write the rows of a table to a file, all of one moment. Run the same command again after a break: it goes on.",
    ),
    "sql": Command(
        "client.commands.queries",
        "Query tables with DuckDB, on this machine: each table is read once, whole, as it is now. Nothing is written.",
    ),
    "snapshots": Command(
        "client.commands.snapshots",
        "List the snapshots of a table, newest first.",
    ),
    "rollback": Command(
        "client.commands.snapshots",
        "Show what going back to a snapshot changes, ask, and go back. The snapshots between stay: it can be undone.",
    ),
    "merge": Command(
        "client.commands.tasks",
        "Merge what is staged now, instead of when it is due.",
    ),
    "compact": Command(
        "client.commands.tasks",
        "Combine the runs of a table.",
    ),
    "status": Command(
        "client.commands.status",
        "Say whether the service is ready (status 6 if not), or what a table holds, keeps and waits for.",
    ),
    "tail": Command(
        "client.commands.changelog",
        "Write the changes of a table as they are merged, a line of JSON each. A connection that breaks "
        "is made again, and nothing is missing or twice.",
    ),
    "open": Command(
        "client.commands.pages",
        "Open the console in a browser: its home, the page of a table, or of a row.",
    ),
    "database": Command(
        "client.commands.databases",
        "Databases of a service: made, listed, dropped.",
    ),
    "table": Command(
        "client.commands.tables",
        "Tables of a service: made of SQL, shown, explained, dropped.",
    ),
    "tag": Command(
        "client.commands.snapshots",
        "Tags of a table: names that keep a snapshot.",
    ),
}


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"keyfold {__version__}")
        raise typer.Exit


def options(
    version: Annotated[  # its callback has answered
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version, and end.")
    ] = False,
) -> None:
    """Primary-key tables assembled from partial, late, repeated and out-of-order updates."""


def run() -> None:
    """Carry out a command line that names no command: help, the version, or that there is no such command."""
    shown = typer.Typer(no_args_is_help=True, callback=options)
    for name, command in COMMANDS.items():
        shown.command(name, help=command.summary)(_nothing)
    shown(prog_name="keyfold")


def _nothing() -> None:
    """What stands for a command."""
