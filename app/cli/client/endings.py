"""The end of a command: an exit status for scripts, and messages for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from http import HTTPStatus
from typing import Any, NoReturn

from pydantic import ValidationError

from app.cli.client.shown import as_line, report


class Exit(IntEnum):
    """The exit status of the commands that call a service; a closed set, listed in docs/cli.md."""

    OK = 0
    REFUSED = 1  # the service refuses the request, or the awaited merge did not succeed
    USAGE = 2  # the command line, a setting or a file is invalid; nothing was sent
    NOT_FOUND = 3  # the database, table, row, snapshot or merge does not exist
    UNREACHABLE = 4  # no service answers at the URL, or the connection was lost
    NOT_PERMITTED = 5  # no token, an invalid one, or one without permission
    BUSY = 6  # the service is unavailable, and stayed so during the retries
    FAULT = 7  # an error inside the service; its log says more
    INTERRUPTED = 130  # Ctrl-C


_OF_STATUS = {
    HTTPStatus.UNAUTHORIZED: Exit.NOT_PERMITTED,
    HTTPStatus.FORBIDDEN: Exit.NOT_PERMITTED,
    HTTPStatus.NOT_FOUND: Exit.NOT_FOUND,
    HTTPStatus.TOO_MANY_REQUESTS: Exit.BUSY,
    HTTPStatus.SERVICE_UNAVAILABLE: Exit.BUSY,
}


def exit_of(status: int) -> Exit:
    """Return the exit status of a command whose last answer had this HTTP status."""
    other = Exit.FAULT if status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED else Exit.REFUSED
    return next((end for known, end in _OF_STATUS.items() if known == status), other)


class Failure(Exception):
    """The end of a command that failed: ``lines`` for people, ``payload`` (JSON) for scripts."""

    def __init__(self, end: Exit, *lines: str, payload: Any = None) -> None:
        super().__init__(*lines)
        self.end = end
        self.lines: Sequence[str] = lines
        self.payload = payload if payload is not None else {"message": " ".join(lines)}


def usage(*lines: str) -> Failure:
    """Return the failure of a command line that cannot be parsed."""
    return Failure(Exit.USAGE, *lines)


def settings_faults(error: ValidationError) -> list[str]:
    """Return the faults of the settings, with the names of their environment variables."""
    faults = error.errors(include_url=False, include_input=False)
    names = [".".join(str(part) for part in fault["loc"]).removeprefix("KEYFOLD_").upper() for fault in faults]
    return [f"KEYFOLD_{name}: {fault['msg']}" for name, fault in zip(names, faults, strict=True)]


def end(failure: Failure) -> NoReturn:
    """Report the failure, and exit with its status."""
    if "--json" in sys.argv:
        report(as_line(failure.payload))
    else:
        first, *others = failure.lines
        for line in (f"keyfold: {first}", *others):
            report(line)
    raise SystemExit(failure.end) from failure
