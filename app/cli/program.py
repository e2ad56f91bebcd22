"""The program ``keyfold``: all commands, and how it ends."""

from __future__ import annotations

import typer
from pydantic import ValidationError

from app.cli import backups, catalog, damage, service, spark, tokens
from app.core.errors import KeyfoldError

cli = typer.Typer(
    help="Primary-key tables assembled from partial, late, repeated and out-of-order updates.", no_args_is_help=True
)
for noun in (service, catalog, damage, backups, spark):
    cli.add_typer(noun.commands)
cli.add_typer(tokens.commands, name="token")


def main() -> None:
    """The console script; what the caller must know is one line, not a traceback."""
    try:
        cli()
    except KeyfoldError as error:
        typer.echo(f"keyfold: {error.message}", err=True)
        raise SystemExit(1) from error
    except ValidationError as error:  # of the settings, the only thing that a command reads
        for fault in error.errors(include_url=False, include_input=False):
            name = ".".join(str(part) for part in fault["loc"]).removeprefix("KEYFOLD_")
            typer.echo(f"keyfold: KEYFOLD_{name.upper()}: {fault['msg']}", err=True)
        raise SystemExit(1) from error
