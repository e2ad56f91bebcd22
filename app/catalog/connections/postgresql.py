"""Connections to a catalog on PostgreSQL, direct or through a pooler such as PgBouncer."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

CONNECTIONS: Final = 12  # at a time, for reading and as many for writing
# A machine that fails inside a transaction must not keep a table's lock until TCP notices, hours later.
_IDLE_SECONDS: Final = 60
_POOLED: Final = "pooled"  # of a connection's ``info``


def postgresql_engine(url: sa.URL, busy_seconds: float) -> sa.Engine:
    """Return the engine for ``url``. A statement waits ``busy_seconds`` for another transaction's lock.

    Behind a pooler each transaction may run in another session of the server: no state is kept in a session.
    """
    connect_args = {} if "connect_timeout" in url.query else {"connect_timeout": 10}
    most = {"pool_size": 5, "max_overflow": CONNECTIONS - 5}
    engine = sa.create_engine(url, **most, pool_pre_ping=True, connect_args=connect_args)
    bounds = {"lock_timeout": f"{busy_seconds}s", "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS}s"}

    def limit(*, in_transaction: bool) -> str:
        """Return the statement that sets the timeouts; with ``in_transaction`` only for the transaction."""
        local = str(in_transaction).lower()
        return "SELECT " + ", ".join(f"set_config('{name}', '{value}', {local})" for name, value in bounds.items())

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, record: sa.pool.ConnectionPoolEntry) -> None:
        session = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
        record.info[_POOLED] = session != connection.info.backend_pid  # a pooler reports an invented number
        if record.info[_POOLED]:
            connection.prepare_threshold = None  # a prepared statement of one session is unknown in another, or differs
        else:
            connection.execute(limit(in_transaction=False))
        connection.commit()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.info[_POOLED]:
            connection.exec_driver_sql(limit(in_transaction=True))

    return engine


def is_pooled(connection: sa.PoolProxiedConnection) -> bool:
    """Return whether a pooler is between the connection and the server."""
    return bool(connection.info[_POOLED])
