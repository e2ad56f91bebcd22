"""Shared by all parts of the repository: one connection inside a transaction, and its clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from app.catalog.shared.marks import TOKENS
from app.catalog.shared.models import batches, facts, snapshots, tables, tokens
from app.catalog.shared.snapshot_cache import SnapshotCache

AnyRow = sa.Row[*tuple[Any, ...]]  # of any query: its attributes are the query's columns
LARGEST_NUMBER = 2**31 - 1
_SEEN = (batches, snapshots, tables)  # lookups depend on these tables; on others only if these change, too


@dataclass
class Touched:
    """The tables whose lookups a transaction changes: those that it has locked, once it changes any, and the
    ``TOKENS`` if it changes those.
    """

    locked: set[str] = field(default_factory=set)
    changes: bool = False

    def note(self, statement: sa.Executable) -> None:
        """Record whether ``statement`` changes what lookups see, and whether it changes tokens.

        A new table is in no view yet.
        """
        if isinstance(statement, sa.UpdateBase) and statement.table in _SEEN:
            self.changes |= not (isinstance(statement, sa.Insert) and statement.table is tables)
        elif isinstance(statement, sa.UpdateBase) and statement.table in (tokens, facts):
            self.changes = True
            self.locked.add(TOKENS)

    @property
    def everything(self) -> bool:
        """Whether all tables count as changed, because none was locked."""
        return self.changes and not self.locked


@dataclass(frozen=True)
class Transaction:
    """A transaction of the catalog over ``connection``; the one that opened it ends it.

    ``loaded`` is the cache of snapshots, ``clock`` replaces the database's clock (tests), ``touched`` collects the
    tables whose lookups change with the commit.
    """

    connection: sa.Connection
    loaded: SnapshotCache = field(default_factory=SnapshotCache)
    clock: Callable[[], datetime] | None = None
    touched: Touched = field(default_factory=Touched)

    def execute(self, statement: sa.Executable, values: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        """Return the result of ``statement``, run with ``values`` (one mapping, or a list of them for as many rows)."""
        self.touched.note(statement)
        return self.connection.execute(statement, values)

    def erase(self) -> None:
        """Overwrite the rows that this transaction deletes, which SQLite would only unlink."""
        if self.connection.dialect.name == "sqlite":
            self.execute(sa.text("PRAGMA secure_delete = ON"))

    @property
    def writes(self) -> bool:
        """Whether the transaction may write, and so may see uncommitted values."""
        return bool(self.connection.get_execution_options().get("writes", False))

    def now(self) -> datetime:
        """Return the time by the database's clock on PostgreSQL, so that leases hold between machines whose clocks
        differ.

        SQLite has one machine and hence one clock. Either may be set back: a stored time may lie in the future, and
        nothing may wait for it.
        """
        if self.clock is not None:
            return self.clock()
        if self.connection.dialect.name == "sqlite":
            return datetime.now(UTC)
        time: datetime = self.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return time.astimezone(UTC)
