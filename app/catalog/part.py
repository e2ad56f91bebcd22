"""What every part of the repository stands on: one connection inside a transaction, and its clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

AnyRow = sa.Row[*tuple[Any, ...]]  # of any query: its attributes are the query's columns
LARGEST_NUMBER = 2**31 - 1


class CatalogPart:
    """Reads and writes over ``connection``; whoever opened its transaction ends it."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def now(self) -> datetime:
        """The time by the database's clock on PostgreSQL, so that leases hold between machines whose clocks differ.

        SQLite has one machine and hence one clock.
        """
        if self.connection.dialect.name == "sqlite":
            return datetime.now(UTC)
        time: datetime = self.connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return time.astimezone(UTC)
