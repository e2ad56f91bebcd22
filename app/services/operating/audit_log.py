"""The audit log: JSON lines that say who changed which database, table or token, and who was refused."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final

from app.core.errors import Unavailable

logger = logging.getLogger(__name__)
STREAMS: Final[Mapping[str, Callable[[], Any]]] = {"stdout": lambda: sys.stdout, "stderr": lambda: sys.stderr}
TAIL_BYTES: Final = 2**18


class AuditLog:
    """Lines of JSON to ``destination``: ``stdout``, ``stderr`` or a file, which only its owner may read.

    If the file was moved away, it is created again: rotation needs no signal. Several processes may share it.

    A line that cannot be written goes to the service's own log, and the request continues.
    """

    def __init__(self, destination: str) -> None:
        """Open the file. Raise ``Unavailable`` if it cannot be opened."""
        stream = STREAMS.get(destination)
        try:
            self._lines = _Stream(stream()) if stream else _File(destination, encoding="utf-8")
        except OSError as error:
            message = f"the audit log {destination} cannot be opened: {error.strerror}; set KEYFOLD_AUDIT_LOG"
            raise Unavailable(message) from error

    def write(self, **members: object) -> None:
        """Write one line: the time, and ``members`` that are not None. Never a token's text, never a value of a row."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, **{name: value for name, value in members.items() if value is not None}}
        # Escaped: half a surrogate pair, which a path may hold, has no UTF-8.
        record = logging.makeLogRecord({"msg": json.dumps(line, separators=(",", ":"))})
        try:
            self._lines.handle(record)
        except OSError:  # a file that was moved away and cannot be made again
            _log_failure(record)

    def close(self) -> None:
        """Close the log."""
        self._lines.close()


def _log_failure(record: logging.LogRecord) -> None:
    logger.exception("a line of the audit log could not be written: %s", record.msg)


class _LogsFailures(logging.Handler):
    """Logs lines that could not be written to the service's own log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        _log_failure(record)


class _Stream(_LogsFailures, logging.StreamHandler[Any]):
    pass


class _File(_LogsFailures, WatchedFileHandler):
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=_private)


def _private(path: str, flags: int) -> int:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, 0o600)


def last_lines(path: str, most: int) -> list[dict[str, Any]]:
    """Return the last ``most`` lines within the last ``TAIL_BYTES`` of the file, the oldest first. Other lines than
    those of an audit log are left out. A missing file has none. Raise ``Unavailable`` if it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(begin)
            lines = file.read(TAIL_BYTES).split(b"\n")[1 if begin else 0 :]  # the first may be a part of one
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(f"the audit log {path} cannot be read: {error.strerror}") from error
    return [line for line in map(_read, lines[-most - 1 :]) if line is not None][-most:]


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None
