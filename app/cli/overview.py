"""The texts of ``keyfold --help`` and ``--version``, without loading the modules of commands, which takes a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

import typer

from app import __version__


class Command(NamedTuple):
    """A command: its name, module and summary."""

    module: str  # of ``app.cli``: the module with the command in its ``commands``
    summary: str


# The one list of commands; a test compares the summaries with the commands' own.
COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command(
        "service",
        "Serve the API, with a merge worker and, unless configured otherwise, embedded Spark and SQLite.",
    ),
    "worker": Command(
        "service",
        "Run merges only; several workers and servers may share one PostgreSQL catalog.",
    ),
    "migrate": Command(
        "catalog",
        "Create or upgrade the catalog database.",
    ),
    "verify": Command(
        "damage",
        "Check the catalog and every file that it names. List damaged and missing files; exit with 1 if there are any.",
    ),
    "backup": Command(
        "backups",
        "Back up the catalog and its files while the service runs. Files of earlier backups are not copied again.",
    ),
    "restore": Command(
        "backups",
        "Restore a backup into an empty data folder, or an empty database and warehouse.",
    ),
    "check-spark": Command(
        "spark",
        "Merge and compact a small table on the configured Spark. If it cannot, say what is missing and exit with 1.",
    ),
    "token": Command(
        "tokens",
        "Create, list and revoke API tokens.",
    ),
    "load": Command(
        "client.commands.loads",
        "Post the records of files, in order. After an interruption run the same command again: posted batches "
        "are recognized by their content, and count once.",
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
        "Explain a row: its records, their effect on each column, and the source of each value.",
    ),
    "simulate": Command(
        "client.commands.explain",
        "Fold records without storing them: show each row before and after, and the effect of every record.",
    ),
    "forget": Command(
        "client.commands.forget",
        "Remove keys from rows, snapshots, history and changelogs, permanently.",
    ),
    "forgettings": Command(
        "client.commands.forget",
        "List finished and pending removals of keys from a table, newest first.",
    ),
    "scan": Command(
        "client.commands.scans",
        "Print the rows of a table as of one moment.",
    ),
    "count": Command(
        "client.commands.scans",
        "Count the rows of a table.",
    ),
    "export": Command(
        "client.commands.exports",
        "Write the rows of a table as of one moment to a file. After an interruption run it again: it continues.",
    ),
    "sql": Command(
        "client.commands.queries",
        "Query tables with DuckDB, on this machine: each table is read once, completely, in its present state. "
        "Nothing is written.",
    ),
    "snapshots": Command(
        "client.commands.snapshots",
        "List the snapshots of a table, newest first.",
    ),
    "rollback": Command(
        "client.commands.snapshots",
        "Show what a rollback to a snapshot changes, ask, and roll back. The snapshots between stay: it can be undone.",
    ),
    "merge": Command(
        "client.commands.tasks",
        "Merge the staged batches now, before they are due.",
    ),
    "compact": Command(
        "client.commands.tasks",
        "Combine the runs of a table.",
    ),
    "status": Command(
        "client.commands.status",
        "Show whether the service is ready (exit status 6 if not), or the size and backlog of a table.",
    ),
    "tail": Command(
        "client.commands.changelog",
        "Print the changes of a table as they are merged, a line of JSON each. After a lost connection it "
        "continues, without gaps or repeats.",
    ),
    "open": Command(
        "client.commands.pages",
        "Open the console in a browser: its home, the page of a table, or of a row.",
    ),
    "database": Command(
        "client.commands.databases",
        "Create, list and drop databases.",
    ),
    "table": Command(
        "client.commands.tables",
        "Create, show, alter, copy and drop tables.",
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
    version: Annotated[  # the callback has printed its answer
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version, and end.")
    ] = False,
) -> None:
    """Primary-key tables assembled from partial, late, repeated and out-of-order updates."""


def run() -> None:
    """Run a command line without a command: help, the version, or an error for an unknown command."""
    shown = typer.Typer(no_args_is_help=True, callback=options)
    for name, command in COMMANDS.items():
        shown.command(name, help=command.summary)(_nothing)
    shown(prog_name="keyfold")


def _nothing() -> None:
    """Stand in for a command that is not loaded."""
