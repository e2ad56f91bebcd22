"""Connections to a catalog on PostgreSQL, direct or through a pooler such as PgBouncer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

# At most this many connections for reading, and as many for writing.
CONNECTIONS: Final = 12
# A machine that fails inside a transaction must not keep a table's lock until TCP notices, hours later.
_IDLE_SECONDS: Final = 60
# The key in a connection's ``info`` under which ``is_pooled`` is stored.
_POOLED: Final = "pooled"


@dataclass(frozen=True)
class _Sessions:
    """Sets the timeouts of sessions: once in a session of its connection, in each transaction behind a pooler."""

    lock_seconds: float

    def configure(self, connection: Any, record: sa.pool.ConnectionPoolEntry) -> None:
        """Set up a new connection of the driver."""
        session = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
        record.info[_POOLED] = session != connection.info.backend_pid  # a pooler reports an invented number
        if record.info[_POOLED]:
            connection.prepare_threshold = None  # a prepared statement of one session is unknown in another, or differs
        else:
            connection.execute(self._timeouts(in_transaction=False))
        connection.commit()

    def begin(self, connection: sa.Connection) -> None:
        """Set the timeouts of a transaction behind a pooler."""
        if connection.info[_POOLED]:
            connection.exec_driver_sql(self._timeouts(in_transaction=True))

    def _timeouts(self, *, in_transaction: bool) -> str:
        """Return the statement that sets the timeouts, with ``in_transaction`` only until its end."""
        timeouts = {"lock_timeout": self.lock_seconds, "idle_in_transaction_session_timeout": _IDLE_SECONDS}
        local = str(in_transaction).lower()
        return "SELECT " + ", ".join(f"set_config('{name}', '{value}s', {local})" for name, value in timeouts.items())


def postgresql_engine(url: sa.URL, busy_seconds: float) -> sa.Engine:
    """Return the engine for ``url``. A statement waits ``busy_seconds`` for another transaction's lock.

    Behind a pooler each transaction may run in another session of the server: no state is kept in a session.
    """
    connect_args = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
    most = {"pool_size": 5, "max_overflow": CONNECTIONS - 5}
    engine = sa.create_engine(url, **most, pool_pre_ping=True, connect_args=connect_args)
    sessions = _Sessions(busy_seconds)
    sa.event.listen(engine, "connect", sessions.configure)
    sa.event.listen(engine, "begin", sessions.begin)
    return engine


def is_pooled(connection: sa.PoolProxiedConnection) -> bool:
    """Return whether a pooler is between the connection and the server."""
    return bool(connection.info[_POOLED])
