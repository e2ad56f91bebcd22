"""The commands that ask a service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import typer
from pydantic import ValidationError

from app.cli.client.commands import (
    alterations,
    changelog,
    databases,
    explain,
    exports,
    forget,
    loads,
    pages,
    queries,
    rows,
    scans,
    snapshots,
    status,
    tables,
    tasks,
)
from app.cli.client.endings import Exit, Failure, failure_of, settings_faults
from app.cli.client.shown import as_line, report
from keyfold_client import KeyfoldError

commands = typer.Typer(no_args_is_help=True)
for noun in (loads, rows, explain, forget, scans, exports, queries, snapshots, tasks, status, changelog, pages):
    commands.add_typer(noun.commands)
commands.add_typer(databases.commands, name="database")
tables.commands.command("alter")(alterations.alter)
tables.commands.command("copy")(alterations.copy)
commands.add_typer(tables.commands, name="table")
commands.add_typer(snapshots.tags, name="tag")


def knows(words: Sequence[str]) -> bool:
    """Whether the first word of a command line is a command here."""
    return bool(words) and words[0] in getattr(typer.main.get_command(commands), "commands", {})


def _end(failure: Failure) -> NoReturn:
    if "--json" in sys.argv:
        report(as_line(failure.payload))
    else:
        first, *others = failure.lines
        for line in (f"keyfold: {first}", *others):
            report(line)
    raise SystemExit(failure.end) from failure


def carry_out(program: typer.Typer) -> None:
    """Carry out the command line. What went wrong with the service is reported in lines, with ``--json`` in JSON, on
    standard error, and by the exit status: an ``Exit``.
    """
    try:
        program(prog_name="keyfold")
    except Failure as failure:
        _end(failure)
    except KeyfoldError as error:
        _end(failure_of(error))


def run() -> None:
    """Carry out a command that asks a service."""
    try:
        carry_out(commands)
    except ValidationError as error:  # of the settings, the only thing that is read so
        for line in settings_faults(error):
            report(f"keyfold: {line}")
        raise SystemExit(Exit.USAGE) from error
