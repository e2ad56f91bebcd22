"""What every part of the repository stands on: one connection inside a transaction, and its clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from app.catalog.snapshot_cache import SnapshotCache

AnyRow = sa.Row[*tuple[Any, ...]]  # of any query: its attributes are the query's columns
LARGEST_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Transaction:
    """A transaction of the catalog over ``connection``; whoever opened it ends it.

    ``loaded`` is what the process has read of snapshots before, ``clock`` stands in for the database's own (tests).
    """

    connection: sa.Connection
    loaded: SnapshotCache = field(default_factory=SnapshotCache)
    clock: Callable[[], datetime] | None = None

    def execute(self, statement: sa.Executable, values: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        """The result of ``statement``, run with ``values`` (one mapping, or a list of them for as many rows)."""
        return self.connection.execute(statement, values)

    @property
    def writes(self) -> bool:
        """Whether the transaction may write, and so may see what is never committed."""
        return bool(self.connection.get_execution_options().get("writes", False))

    def now(self) -> datetime:
        """The time by the database's clock on PostgreSQL, so that leases hold between machines whose clocks differ.

        SQLite has one machine and hence one clock. Either may be set back: a stored time may lie in the future, and
        nothing may wait for it.
        """
        if self.clock is not None:
            return self.clock()
        if self.connection.dialect.name == "sqlite":
            return datetime.now(UTC)
        time: datetime = self.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return time.astimezone(UTC)
