"""Connections to a catalog on SQLite, all to one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app.core.errors import Unavailable


class _OneFile:
    """The file that an engine's first connection opened. If the file was removed or replaced, nothing is read or
    written: SQLite would continue with the removed file, and create an empty one for the next connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def opened(self) -> None:
        """Note that some connection has opened the file."""
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

    @sa.event.listens_for(engine, "do_connect")
    def check(*_: object) -> None:
        file.check()

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver's own transactions begin too late; see begin() below
        connection.execute("PRAGMA foreign_keys = ON")
        # With WAL the default (NORMAL) loses the last commits on power loss; an accepted batch must survive it.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves them in the disk's cache
        connection.execute("PRAGMA case_sensitive_like = ON")  # as on PostgreSQL
        connection.execute("PRAGMA journal_mode = WAL")  # makes a new file
        file.opened()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        file.check()
        # A write transaction that began by reading could not wait for its turn: SQLite refuses the upgrade at once.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    @sa.event.listens_for(engine, "engine_disposed")
    def closed(_engine: object) -> None:
        file.closed()

    return engine
