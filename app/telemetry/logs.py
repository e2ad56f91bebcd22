"""The service's log: text for people or a JSON object a line, each line with the ids of its request and task."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from pythonjsonlogger.json import JsonFormatter

from app.core.errors import Unavailable
from app.telemetry.traces import trace_id

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s%(about)s"
_SHOWN: Final = "%(asctime)s %(level)s%(message)s"
_JSON: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_RENAMED: Final = {"asctime": "time", "levelname": "level", "name": "logger"}
_ESCAPED: Final = {number: repr(chr(number))[1:-1] for number in (*range(32), 127, 0x85, 0x2028, 0x2029)}
# Texts of Python, Java and the catalog's failures; Spark's errors contain them only as text.
_NO_ROOM: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039  # no one changes it

_request: ContextVar[bytes | None] = ContextVar("request", default=None)  # apart: lookups set nothing else
# The log lines of a task from here on have this request id. Each request has its task, so it is never reset.
begin_request: Final = _request.set


def request_id() -> str | None:
    """Return the id of the request that is being answered; None outside of one."""
    current = _request.get()
    return None if current is None else current.decode()


class LogFormat(StrEnum):
    """The format of the log."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def about(**ids: str) -> Iterator[None]:
    """Add ``ids`` to all log lines of the body, also by threads that are started with its context."""
    before = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(before)


class _Foreseen(logging.Filter):
    """Replaces the traceback of errors that an operator can fix with a message: a full disk, or a catalog or store
    that does not answer.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        known = None if error is None else _foreseen(error)
        if known is not None:
            message = record.getMessage()
            record.msg, record.args = message if known in message else f"{message}: {known}", ()
            record.exc_info = record.exc_text = None
        return True


def _foreseen(error: BaseException) -> str | None:
    """Return the message for an expected error, which is not a bug of the program."""
    cause: BaseException | None = error
    while cause is not None:
        if any(words in str(cause) for words in _NO_ROOM):
            return "a disk is full: make room on it (docs/runbook.md, KeyfoldDiskFills)"
        cause = cause.__cause__
    return error.message if isinstance(error, Unavailable) else None


class _About(logging.Filter):
    """Adds the ids to every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        request, traced = _request.get(), trace_id()
        ids = {**({} if request is None else {"request": request.decode()}), **_about.get()}
        if traced is not None:
            ids["trace"] = traced
        record.about = "".join(f" {name}={value}" for name, value in ids.items())
        record.ids = ids
        return True


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _TextLines(logging.Formatter):
    """One line per record, for any names and messages; tracebacks follow on separate lines."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.translate(_ESCAPED)
        return super().formatMessage(record)


class _Shown(_TextLines):
    """Short lines for a terminal: the time of the day, no ids, and a level only for warnings and errors."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.level = "" if record.levelno < logging.WARNING else f"{record.levelname} "
        return super().formatMessage(record)


class _JsonLines(JsonFormatter):
    """One JSON object per line; the ids are separate members."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return _time(record)

    def add_fields(
        self, log_data: dict[str, object], record: logging.LogRecord, message_dict: dict[str, object]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        log_data.pop("about", None)
        log_data.pop("ids", None)
        log_data.update(getattr(record, "ids", {}))


def log_to_stderr(level: str, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Write the log of this process and its forks to standard error, as text in short lines if that is a terminal."""
    stream = logging.StreamHandler()
    stream.addFilter(_About())
    stream.addFilter(_Foreseen())
    shown = stream.stream.isatty() and log_format is LogFormat.TEXT
    formatter: logging.Formatter = _Shown(_SHOWN) if shown else _TextLines(_TEXT)
    if log_format is LogFormat.JSON:
        formatter = _JsonLines(_JSON, rename_fields=_RENAMED)
    stream.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
    logging.getLogger("alembic").setLevel("WARNING")
    if shown and level.upper() == "INFO":
        logging.getLogger("uvicorn.error").setLevel("WARNING")  # what it says of its start, Keyfold says in a line
