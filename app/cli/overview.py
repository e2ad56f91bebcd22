"""The texts of ``keyfold --help`` and ``--version``, without loading what the commands need: that takes a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from app import __version__

# A test compares them with the commands' own.
SUMMARIES: Final[Mapping[str, str]] = {
    "serve": ("Serve the API, with a merge worker and, unless configured otherwise, embedded Spark and SQLite."),
    "worker": "Run merges only, with any number of other workers and servers on one PostgreSQL catalog.",
    "migrate": "Create or upgrade the catalog database.",
    "verify": (
        "Check the catalog, read every file that it names, list what is damaged or missing; status 1 if anything is."
    ),
    "backup": ("Back up catalog and files while the service runs; what an earlier backup has is not copied again."),
    "restore": "Put a backup back, into a data folder (or database and warehouse) that holds nothing yet.",
    "check-spark": (
        "Merge and compact a small table on the Spark that is configured: status 1 and what is missing, if anything is."
    ),
    "token": "API tokens: made, listed, revoked.",
    "load": (
        "Post the records of files, in their order. Run the same command again after a break: what was "
        "posted is known by its content, and counts once."
    ),
    "get": "Show the row of a key.",
    "put": "Post one record: the columns that it names, folded by the table's rules.",
    "delete": "Post a -D record for the row of a key.",
    "explain": (
        "Say why a row shows what it shows: its records, what each did to each column, where each value came from."
    ),
    "simulate": "Fold records without storing them: each row before and after, and what every record did.",
    "forget": "Take keys out of rows, snapshots, history and changelogs, for good.",
    "forgettings": "List what was forgotten of a table and what is to be, newest first.",
    "scan": "Write the rows of a table, all of one moment.",
    "count": "Count the rows of a table.",
    "export": (
        "Write the rows of a table to a file, all of one moment. Run the same command again after a break: it goes on."
    ),
    "sql": (
        "Query tables with DuckDB, on this machine: each table is read once, whole, as it is now. Nothing is written."
    ),
    "snapshots": "List the snapshots of a table, newest first.",
    "rollback": (
        "Show what going back to a snapshot changes, ask, and go back. The snapshots between stay: it can be undone."
    ),
    "merge": "Merge what is staged now, instead of when it is due.",
    "compact": "Combine the runs of a table.",
    "status": ("Say whether the service is ready (status 6 if not), or what a table holds, keeps and waits for."),
    "tail": (
        "Write the changes of a table as they are merged, a line of JSON each. A connection that breaks "
        "is made again, and nothing is missing or twice."
    ),
    "open": "Open the console in a browser: its home, the page of a table, or of a row.",
    "database": "Databases of a service: made, listed, dropped.",
    "table": "Tables of a service: made of SQL, shown, explained, dropped.",
    "tag": "Tags of a table: names that keep a snapshot.",
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


def suffices(words: Sequence[str]) -> bool:
    """Return whether a command line names no command."""
    return all(word in ("--help", "--version") for word in words)


def run() -> None:
    """Say what the command line asks for."""
    shown = typer.Typer(no_args_is_help=True, callback=options)
    for name, summary in SUMMARIES.items():
        shown.command(name, help=summary)(_nothing)
    shown(prog_name="keyfold")


def _nothing() -> None:
    """What stands for a command."""
