"""A PostgreSQL with logical replication that changes all the time: three tables, random transactions by seed."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
from psycopg.types.string import TextLoader

from lab.debezium.columns import COLUMNS, Column
from lab.faults.system import Kept, free_port
from tests.postgres import initialized

SCHEMA: Final = "shop"
FIRST, MIDDLE, LAST = 0, 1_000_000_000, 2_000_000_000  # keys of rows that tell how far the events have come
KEYS: Final = 300  # so each row has many lives
_STATEMENTS: Final = 8  # of a transaction, at most
_PATIENCE_SECONDS: Final = 60


class Source:
    """The server. It runs on a port of loopback until ``exits`` closes, and starts again when it is killed."""

    def __init__(self, folder: Path, seed: int, exits: ExitStack) -> None:
        server = initialized(folder / "postgres")
        self.port, self.user = free_port(), server.postgres_user
        command = [str(server.bin_path / "postgres"), "-D", str(server.pgdata), "-h", "127.0.0.1", "-p", str(self.port)]
        command += ["-k", "", "-c", "fsync=off", "-c", "wal_level=logical"]
        if server.system_user:
            user = pwd.getpwnam(server.system_user)
            ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            command = ["setpriv", *ids, *command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self.kept = Kept("postgres", command, folder, environment)
        exits.callback(self.kept.end)
        self.url = f"postgresql://{self.user}@127.0.0.1:{self.port}/postgres"
        self.added: dict[str, Column] = {}  # columns of ``kinds`` that came later
        self._random = Random(seed)
        self._step = 1

    def make(self) -> None:
        """The tables, with a row each, which is the snapshot's first."""
        columns = ", ".join(f"{name} {column.declared}" for name, column in COLUMNS.items())
        external = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name, column in COLUMNS.items() if column.is_long)
        with self.connected() as connection:
            for statement in (
                f"CREATE SCHEMA {SCHEMA}",
                "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
                "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL)",
                f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
                f"ALTER TABLE kinds {external}",
                "CREATE TABLE orders (region text, id int, status text, note text, PRIMARY KEY (region, id))",
                "ALTER TABLE orders REPLICA IDENTITY FULL",
            ):
                connection.execute(statement)
            self.mark(connection, FIRST)

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection]:
        """A connection to the server, which is waited for; every value is read as text."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                connection = psycopg.connect(
                    self.url, options=f"-c TimeZone=UTC -c search_path={SCHEMA}", autocommit=True
                )
                break
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        with connection:
            for name in ("interval", "money"):
                connection.adapters.register_loader(name, TextLoader)
            yield connection

    def mark(self, connection: psycopg.Connection, key: int) -> None:
        """A row with ``key`` in each table."""
        connection.execute("INSERT INTO counters VALUES (%s, 0)", [key])
        connection.execute("INSERT INTO kinds (id) VALUES (%s)", [key])
        connection.execute("INSERT INTO orders VALUES ('mark', %s)", [key])

    def change(self, count: int) -> None:
        """At least so many changed rows, in random transactions. A lost connection is made again."""
        left = count
        while left > 0:
            try:
                with self.connected() as connection:
                    while left > 0:
                        left -= self._transaction(connection)
            except psycopg.OperationalError:
                continue

    def add_column(self) -> None:
        """A column with a default, which rows that are there have, too."""
        self.added["gift"] = Column("boolean", str, lambda value: str(value).lower())
        with self.connected() as connection:
            connection.execute("ALTER TABLE kinds ADD COLUMN gift boolean DEFAULT false")

    def widen(self) -> None:
        """A column becomes wider, and its values leave the old type.

        All events of before must have been read. A connector that came back later was sent wrong numbers for them by
        PostgreSQL 18.4: int4 rows, read as int8.
        """
        with self.connected() as connection:
            connection.execute("ALTER TABLE counters ALTER n TYPE bigint")
        self._step = 2**31

    def rows(self, table: str, read: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        """All rows, of columns by the SQL that reads them, with ``{}`` for the name."""
        with self.connected() as connection:
            terms = ", ".join(sql.format(name) for name, sql in read.items())
            yield from connection.execute(f"SELECT {terms} FROM {table}").fetchall()

    def _transaction(self, connection: psycopg.Connection) -> int:
        with connection.transaction():
            return sum(
                self._random.choices([self._count, *_CHANGES], _WEIGHTS)[0](connection, self._random)
                for _ in range(self._random.randrange(1, _STATEMENTS))
            )

    def _count(self, connection: psycopg.Connection, random: Random) -> int:
        return connection.execute(
            "INSERT INTO counters AS c VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + %s",
            [_key(random), self._step],
        ).rowcount


def _insert_kinds(connection: psycopg.Connection, random: Random) -> int:
    names = [name for name in COLUMNS if random.random() < 0.9]
    marks = ", ".join(f"%s::{COLUMNS[name].declared}" for name in names)
    return connection.execute(
        f"INSERT INTO kinds (id, {', '.join(names)}) VALUES (%s, {marks}) ON CONFLICT DO NOTHING",
        [_key(random), *(COLUMNS[name].made(random) for name in names)],
    ).rowcount


def _update_kinds(connection: psycopg.Connection, random: Random) -> int:
    """Of few columns: the long values of the others are not sent."""
    names = random.sample([*COLUMNS], random.randrange(1, 4))
    sets = ", ".join(f"{name} = %s::{COLUMNS[name].declared}" for name in names)
    values = [COLUMNS[name].made(random) if random.random() < 0.9 else None for name in names]
    return connection.execute(f"UPDATE kinds SET {sets} WHERE id = %s", [*values, _key(random)]).rowcount


def _move_kinds(connection: psycopg.Connection, random: Random) -> int:
    """To another key, where that is free. The event of a new key lacks long values that stay, and no table can have
    them from elsewhere: so all are new.
    """
    old, new = _key(random), _key(random)
    names = [name for name, column in COLUMNS.items() if column.is_long]
    sets = ", ".join(f"{name} = %s::{COLUMNS[name].declared}" for name in names)
    return connection.execute(
        f"UPDATE kinds SET id = %s, {sets} WHERE id = %s AND NOT EXISTS (SELECT 1 FROM kinds WHERE id = %s)",
        [new, *(COLUMNS[name].made(random) for name in names), old, new],
    ).rowcount


def _delete_kinds(connection: psycopg.Connection, random: Random) -> int:
    return connection.execute("DELETE FROM kinds WHERE id = %s", [_key(random)]).rowcount


def _put_order(connection: psycopg.Connection, random: Random) -> int:
    return connection.execute(
        "INSERT INTO orders AS o VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (region, id) DO UPDATE SET status = excluded.status",
        [random.choice(_REGIONS), _key(random), random.choice(["new", "paid", None]), COLUMNS["note"].made(random)],
    ).rowcount


def _move_order(connection: psycopg.Connection, random: Random) -> int:
    """To another region: the key changes, its long note is kept."""
    key, (old, new) = _key(random), random.sample(_REGIONS, 2)
    return connection.execute(
        "UPDATE orders SET region = %s WHERE region = %s AND id = %s AND NOT EXISTS "
        "(SELECT 1 FROM orders WHERE region = %s AND id = %s)",
        [new, old, key, new, key],
    ).rowcount


def _delete_order(connection: psycopg.Connection, random: Random) -> int:
    return connection.execute(
        "DELETE FROM orders WHERE region = %s AND id = %s", [random.choice(_REGIONS), _key(random)]
    ).rowcount


def _key(random: Random) -> int:
    return random.randrange(1, KEYS)


_REGIONS: Final = ["eu", "us", "é"]
_CHANGES: Final = (
    _insert_kinds,
    _update_kinds,
    _move_kinds,
    _delete_kinds,
    _put_order,
    _move_order,
    _delete_order,
)
_WEIGHTS: Final = (30, 10, 20, 4, 4, 24, 4, 4)
