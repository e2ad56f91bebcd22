"""The service of a command: the client with the command's settings, and names of tables in its paths."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from app import __version__
from app.cli.client.endings import usage
from app.cli.client.failures import failure_of
from app.cli.client.settings import client_settings
from app.cli.client.shown import report
from keyfold_client import KeyfoldError, Misuse
from keyfold_client.names import CATALOG, named, path_of_table, segment
from keyfold_client.sync.transport import Transport

__all__ = ["CATALOG", "Service", "named", "path_of", "segment"]
_SAID_SECONDS: Final = 10.0


class Service(Transport):
    """The service that the settings name."""

    @classmethod
    def at(cls, url: str | None, token_file: Path | None) -> Self:
        """Return the service of the settings, or of the command line. Raise ``Failure``."""
        settings = client_settings(url, token_file)
        try:
            return cls(settings.url, settings.shown_token, agent=f"keyfold/{__version__}", paused=_Pauses().report)
        except Misuse as error:
            raise usage(f"{error}: KEYFOLD_TOKEN, --token-file") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Pauses:
    """Reports why a command waits: each reason once, and again after some time."""

    def __init__(self) -> None:
        self._said, self._again = "", 0.0

    def report(self, error: Exception, seconds: float) -> None:
        """Report why the request is repeated, and when."""
        if not isinstance(error, KeyfoldError):
            return
        why = failure_of(error).lines[0]
        if why != self._said or time.monotonic() >= self._again:
            self._said, self._again = why, time.monotonic() + _SAID_SECONDS
            report(f"{why}; asking again in {seconds:.0f} s")


def path_of(table: str, rest: str = "") -> str:
    """Return the path of ``db.table`` and what is below it."""
    return path_of_table(*named(table), rest)
