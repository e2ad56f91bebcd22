"""Connections to a catalog on SQLite, all to one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app.core.errors import Unavailable


class _OneFile:
    """The file that an engine's first connection opened. Once it is removed or replaced, nothing is read or written.

    SQLite would continue with the removed file, and create an empty one for the next connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def opened(self) -> None:
        """Remember the file that the first connection has opened."""
        if self._opened is None:
            self._opened = self._named()

    def closed(self) -> None:
        """Forget the file after all connections were closed: the next one may open another file."""
        self._opened = None

    def check(self) -> None:
        """Raise ``Unavailable`` unless the path still leads to the opened file."""
        if self._opened is not None and self._named() != self._opened:
            raise Unavailable(
                "the catalog's file was removed or replaced while the service ran: stop the service, put the file or a"
                " backup of it in its place, and start again"
            )

    def _named(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino


def sqlite_engine(url: sa.URL, busy_seconds: float) -> sa.Engine:
    """Return the engine for the file of ``url``, which the first connection creates if it is missing. A transaction
    waits ``busy_seconds`` for another one's lock. A connection raises ``Unavailable`` after the file was replaced or
    removed.
    """
    engine = sa.create_engine(url, pool_size=20, max_overflow=-1, connect_args={"timeout": busy_seconds})
    file = _OneFile(Path(url.database or ""))
    # Listeners of one event run in this order.
    sa.event.listen(engine, "do_connect", lambda *_: file.check())
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "connect", lambda *_: file.opened())
    sa.event.listen(engine, "begin", lambda *_: file.check())
    sa.event.listen(engine, "begin", _begin)
    sa.event.listen(engine, "engine_disposed", lambda *_: file.closed())
    return engine


def _configure(connection: Any, _record: object) -> None:
    """Set up a new connection of the driver."""
    connection.isolation_level = None  # the driver's own transactions begin too late; see ``_begin``
    connection.execute("PRAGMA foreign_keys = ON")
    # With WAL the default (NORMAL) loses the last commits on power loss; an accepted batch must survive it.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves them in the disk's cache
    connection.execute("PRAGMA case_sensitive_like = ON")  # as on PostgreSQL
    connection.execute("PRAGMA journal_mode = WAL")  # creates the file if it is missing


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction: one that writes takes the write lock at once, others can only read.

    A transaction that began by reading could not wait for the lock: SQLite refuses the upgrade at once.
    """
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
