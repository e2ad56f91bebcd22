"""The program ``keyfold``: its commands, and the exit status of operators' commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

import typer
from pydantic import ValidationError

from app.cli.client.endings import Failure, end, settings_faults
from app.cli.overview import COMMANDS, options
from app.core.errors import KeyfoldError

_CLIENT = "client."
# Memory arenas of the allocator, for the threads that answer.
_ARENAS = 2


def program_for(words: Sequence[str]) -> typer.Typer:
    """Return the program with the commands that a command line needs; all if it names none."""
    named = COMMANDS.get(words[0]) if words else None
    program = typer.Typer(no_args_is_help=True, callback=options)
    for module in [named.module] if named else dict.fromkeys(command.module for command in COMMANDS.values()):
        program.add_typer(import_module(f"app.cli.{module}").commands)
    return program


def command_of(words: Sequence[str]) -> Callable[[], None]:
    """Return the function that runs a command line which names a command; all modules that it needs are loaded."""
    if COMMANDS[words[0]].module.startswith(_CLIENT):
        carry_out = import_module("app.cli.client.failures").carry_out
    else:
        import_module("app.files.memory").keep_memory_flat(_ARENAS)
        carry_out = _carry_out
    return partial(carry_out, program_for(words))


def _carry_out(program: typer.Typer) -> None:
    """Run the program; report expected errors in one line, without a traceback."""
    try:
        program(prog_name="keyfold")
    except Failure as failure:  # of a service elsewhere
        end(failure)
    except KeyfoldError as error:
        typer.echo(f"keyfold: {error.message}", err=True)
        raise SystemExit(1) from error
    except ValidationError as error:  # of the settings, the only thing that a command reads
        for line in settings_faults(error):
            typer.echo(f"keyfold: {line}", err=True)
        raise SystemExit(1) from error
