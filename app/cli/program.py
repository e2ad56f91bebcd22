"""The program ``keyfold``: its commands, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

import typer
from pydantic import ValidationError

from app.cli.client import program as client
from app.cli.client.endings import settings_faults
from app.cli.overview import options
from app.core.errors import KeyfoldError

# Which module of this package has the commands of operators. Loading one takes up to a second: most need no other.
MODULES: Final[Mapping[str, str]] = {
    "serve": "service",
    "worker": "service",
    "migrate": "catalog",
    "verify": "damage",
    "backup": "backups",
    "restore": "backups",
    "check-spark": "spark",
    "token": "tokens",
}


def program_for(words: Sequence[str]) -> typer.Typer:
    """Return the program as far as a command line needs it: all of it where that names no command of operators."""
    needed = MODULES.get(words[0]) if words else None
    program = typer.Typer(no_args_is_help=True, callback=options)
    for name in dict.fromkeys(MODULES.values()):
        if needed in (None, name):
            program.add_typer(import_module(f"app.cli.{name}").commands)
    program.add_typer(client.commands)
    return program


def run(program: typer.Typer) -> None:
    """Carry out the command line. What the caller must know is one line, not a traceback."""
    try:
        client.carry_out(program)
    except KeyfoldError as error:
        typer.echo(f"keyfold: {error.message}", err=True)
        raise SystemExit(1) from error
    except ValidationError as error:  # of the settings, the only thing that a command reads
        for line in settings_faults(error):
            typer.echo(f"keyfold: {line}", err=True)
        raise SystemExit(1) from error
