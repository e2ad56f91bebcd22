"""A database that changes all the time: three tables, random transactions by seed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any, ClassVar, Final, Protocol

from lab.debezium.columns import Column, as_bool, long
from lab.faults.system import Kept

SCHEMA: Final = "shop"  # of the tables; MariaDB calls it their database
FIRST, MIDDLE, LAST = 0, 1_000_000_000, 2_000_000_000  # keys of rows that show how far the events have come
KEYS: Final = 300  # so each row has many lives
REGIONS: Final = ["eu", "us", "é"]
_STATEMENTS: Final = 8  # of a transaction, at most
_PATIENCE_SECONDS: Final = 60


class Impossible(Exception):
    """Why this machine cannot run a source, or Debezium."""


class Connection(Protocol):
    """One connection to a source."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run it. Return the number of changed rows."""

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a query."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A block that is one transaction."""

    def close(self) -> None:
        """Close it."""


class Source(ABC):
    """The server; it starts again when it is killed."""

    columns: ClassVar[Mapping[str, Column]]  # of ``kinds``
    lost: ClassVar[tuple[type[Exception], ...]]  # what a lost connection raises
    connector: ClassVar[str]  # the artifact in Maven
    kept: Kept

    def __init__(self, seed: int) -> None:
        self.added: dict[str, Column] = {}  # columns of ``kinds`` that came later
        self._random = Random(seed)
        self._step = 1

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """What Debezium's engine knows of this source."""

    @abstractmethod
    def ddl(self, table: str) -> str:
        """Return the CREATE TABLE of a table that follows one of the source."""

    @abstractmethod
    def prepare(self, connection: Connection) -> None:
        """Make the tables."""

    @abstractmethod
    def connect(self) -> Connection:
        """Return a new connection. Raises one of ``lost``."""

    @abstractmethod
    def mark(self, name: str) -> str:
        """Return the place of a value of a column of ``kinds`` in a statement."""

    @abstractmethod
    def on_conflict(self, keys: str) -> str:
        """Return what begins the change of a row that is there already, in an INSERT."""

    def make(self) -> None:
        """The tables, with a row each, which is the snapshot's first."""
        with self.connected() as connection:
            self.prepare(connection)
            self.put_marks(connection, FIRST)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection to the server, which is waited for."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                connection = self.connect()
                break
            except self.lost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        try:
            yield connection
        finally:
            connection.close()

    def put_marks(self, connection: Connection, key: int) -> None:
        """A row with ``key`` in each table."""
        connection.execute("INSERT INTO counters VALUES (%s, 0)", [key])
        connection.execute("INSERT INTO kinds (id) VALUES (%s)", [key])
        connection.execute("INSERT INTO orders (region, id) VALUES ('mark', %s)", [key])

    def change(self, count: int) -> None:
        """At least so many changed rows, in random transactions. A lost connection is made again."""
        left = count
        while left > 0:
            try:
                with self.connected() as connection:
                    while left > 0:
                        left -= self._transaction(connection)
            except self.lost:
                continue

    def alter(self) -> None:
        """A column with a default is added, which rows that are there have, too. Another becomes wider, and its values
        leave the old type.

        All events of before must have been read. To a connector that came back later PostgreSQL 18.4 sent wrong numbers
        (int4 rows, read as int8), and that of MySQL reads old rows by the new columns and ends.
        """
        self.added["gift"] = Column("boolean", str, as_bool)
        with self.connected() as connection:
            connection.execute("ALTER TABLE kinds ADD COLUMN gift boolean DEFAULT false")
            self.make_wider(connection)
        self._step = 2**31

    @abstractmethod
    def make_wider(self, connection: Connection) -> None:
        """Alter ``counters.n`` from 32 bits to 64."""

    def rows(self, table: str, read: Mapping[str, str]) -> Sequence[Sequence[Any]]:
        """All rows, of columns by the SQL that reads them, with ``{}`` for the name."""
        with self.connected() as connection:
            terms = ", ".join(sql.format(name) for name, sql in read.items())
            return connection.rows(f"SELECT {terms} FROM {table}")

    def _transaction(self, connection: Connection) -> int:
        changes = (
            self._count,
            self._put_kinds,
            self._update_kinds,
            self._move_kinds,
            self._delete_kinds,
            self._put_order,
            self._move_order,
            self._delete_order,
        )
        with connection.transaction():
            return sum(
                self._random.choices(changes, _WEIGHTS)[0](connection)
                for _ in range(self._random.randrange(1, _STATEMENTS))
            )

    def _count(self, connection: Connection) -> int:
        return connection.execute(
            f"INSERT INTO counters VALUES (%s, 1) {self.on_conflict('id')} n = counters.n + %s",
            [self._key(), self._step],
        )

    def _put_kinds(self, connection: Connection) -> int:
        names = [name for name in self.columns if self._random.random() < 0.9]
        marks = ", ".join(self.mark(name) for name in names)
        return connection.execute(
            f"INSERT INTO kinds (id, {', '.join(names)}) VALUES (%s, {marks}) {self.on_conflict('id')} id = kinds.id",
            [self._key(), *(self._made(name) for name in names)],
        )

    def _update_kinds(self, connection: Connection) -> int:
        """Of few columns: the long values of the others may not be sent."""
        names = self._random.sample([*self.columns], self._random.randrange(1, 4))
        sets = ", ".join(f"{name} = {self.mark(name)}" for name in names)
        values = [self._made(name) if self._random.random() < 0.9 else None for name in names]
        return connection.execute(f"UPDATE kinds SET {sets} WHERE id = %s", [*values, self._key()])

    def _move_kinds(self, connection: Connection) -> int:
        """To another key, where that is free. The event of a new key lacks long values that stay, and no table can have
        them from elsewhere: so all are new.
        """
        old, new = self._key(), self._key()
        names = [name for name, column in self.columns.items() if column.is_long]
        sets = "".join(f", {name} = {self.mark(name)}" for name in names)
        return connection.execute(
            f"UPDATE kinds SET id = %s{sets} WHERE id = %s AND NOT EXISTS (SELECT 1 FROM kinds WHERE id = %s)",
            [new, *(self._made(name) for name in names), old, new],
        )

    def _delete_kinds(self, connection: Connection) -> int:
        return connection.execute("DELETE FROM kinds WHERE id = %s", [self._key()])

    def _put_order(self, connection: Connection) -> int:
        status = self._random.choice(["new", "paid", None])
        return connection.execute(
            f"INSERT INTO orders VALUES (%s, %s, %s, %s) {self.on_conflict('region, id')} status = %s",
            [self._random.choice(REGIONS), self._key(), status, long(self._random), status],
        )

    def _move_order(self, connection: Connection) -> int:
        """To another region: the key changes, its long note is kept."""
        key, (old, new) = self._key(), self._random.sample(REGIONS, 2)
        return connection.execute(
            "UPDATE orders SET region = %s WHERE region = %s AND id = %s AND NOT EXISTS "
            "(SELECT 1 FROM orders WHERE region = %s AND id = %s)",
            [new, old, key, new, key],
        )

    def _delete_order(self, connection: Connection) -> int:
        return connection.execute(
            "DELETE FROM orders WHERE region = %s AND id = %s", [self._random.choice(REGIONS), self._key()]
        )

    def _made(self, name: str) -> Any:
        return self.columns[name].made(self._random)

    def _key(self) -> int:
        return self._random.randrange(1, KEYS)


_WEIGHTS: Final = (30, 10, 20, 4, 4, 24, 4, 4)
