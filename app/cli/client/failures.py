"""The exit status and messages for failures of the client."""

from __future__ import annotations

import typer
from pydantic import ValidationError

from app.cli.client.endings import Exit, Failure, end, exit_of, settings_faults
from app.cli.client.shown import report
from keyfold_client import KeyfoldError, Misuse, NotKeyfold, Refused, Unreachable


def failure_of(error: KeyfoldError) -> Failure:
    """Return the failure of a command for ``error``."""
    if isinstance(error, Refused):
        return Failure(exit_of(error.status), *error.lines, payload=error.problem)
    if isinstance(error, Unreachable):
        fix = "is it running (keyfold serve), and is --url or KEYFOLD_URL right?"
        return Failure(Exit.UNREACHABLE, f"{error.what}; {fix}")
    message = str(error).replace("is the URL right?", "is --url or KEYFOLD_URL right?")
    ends = {Misuse: Exit.USAGE, NotKeyfold: Exit.UNREACHABLE}
    return Failure(ends.get(type(error), Exit.REFUSED), message)


def carry_out(program: typer.Typer) -> None:
    """Run the command line. Failures of the service are reported on standard error, as text or with ``--json`` as
    JSON, and by the exit status (``Exit``).
    """
    try:
        program(prog_name="keyfold")
    except Failure as failure:
        end(failure)
    except KeyfoldError as error:
        end(failure_of(error))
    except ValidationError as error:  # of the settings, the only thing that is read so
        for line in settings_faults(error):
            report(f"keyfold: {line}")
        raise SystemExit(Exit.USAGE) from error
