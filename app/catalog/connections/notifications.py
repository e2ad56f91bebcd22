"""PostgreSQL's notifications of commits on other machines: NOTIFY inside the transaction, LISTEN in each serving
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import sqlalchemy as sa

from app.catalog.connections.postgresql import is_pooled
from app.catalog.shared.transaction import Touched
from app.core.errors import Unavailable

if TYPE_CHECKING:
    import psycopg

CHANNEL = "keyfold_commits"
EVERYTHING = "*"


def notify(connection: sa.Connection, touched: Touched, identity: int) -> None:
    """Notify other machines which tables the commit changes. ``identity`` is this machine, whose processes see the
    change by its marks.
    """
    for table_id in sorted(touched.locked) or [EVERYTHING]:
        connection.execute(sa.select(sa.func.pg_notify(CHANNEL, f"{identity} {table_id}")))


@dataclass(frozen=True)
class Notifications:
    """One connection that listens."""

    connection: psycopg.Connection
    identity: int

    @classmethod
    def listening(cls, engine: sa.Engine, identity: int) -> Notifications | None:
        """Return a separate connection, outside the pool, that receives notifications of every commit from now on;
        None behind a pooler, which may run LISTEN in another session. Raise ``Unavailable``.
        """
        import psycopg  # noqa: PLC0415  # only where the catalog is on PostgreSQL

        try:
            pooled = engine.raw_connection()
            if is_pooled(pooled):
                pooled.close()
                return None
            connection = cast("psycopg.Connection", pooled.driver_connection)
            pooled.detach()
            connection.autocommit = True
            connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as error:  # SQLAlchemy does not wrap what a raw connection raises
            raise Unavailable("the catalog does not answer the connection that listens for commits") from error
        return cls(connection, identity)

    def within(self, seconds: float) -> Iterator[str]:
        """Yield the tables that other machines changed, or ``EVERYTHING``, as they come within ``seconds``.

        Raise ``Unavailable`` if the connection is lost.
        """
        import psycopg  # noqa: PLC0415  # only where the catalog is on PostgreSQL

        try:
            for notification in self.connection.notifies(timeout=seconds):
                identity, _, table_id = notification.payload.partition(" ")
                if int(identity) != self.identity:
                    yield table_id
        except psycopg.Error as error:
            raise Unavailable("the connection that listens for commits was lost") from error

    def close(self) -> None:
        """Close the connection that listens."""
        self.connection.close()
