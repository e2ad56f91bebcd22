"""The program ``keyfold``: all commands, and how it ends."""

from __future__ import annotations

import typer
from pydantic import ValidationError

from app.cli import backups, catalog, damage, service, spark, tokens
from app.cli.client import program as client
from app.cli.client.endings import settings_faults
from app.cli.overview import options
from app.core.errors import KeyfoldError

cli = typer.Typer(no_args_is_help=True, callback=options)
for noun in (service, catalog, damage, backups, spark):
    cli.add_typer(noun.commands)
cli.add_typer(client.commands)
cli.add_typer(tokens.commands, name="token")


def run() -> None:
    """What the caller must know is one line, not a traceback."""
    try:
        client.carry_out(cli)
    except KeyfoldError as error:
        typer.echo(f"keyfold: {error.message}", err=True)
        raise SystemExit(1) from error
    except ValidationError as error:  # of the settings, the only thing that a command reads
        for line in settings_faults(error):
            typer.echo(f"keyfold: {line}", err=True)
        raise SystemExit(1) from error
