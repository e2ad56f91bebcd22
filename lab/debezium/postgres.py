"""PostgreSQL with logical replication as a source."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import time
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import psycopg

from lab.debezium.columns import (
    Column,
    as_bool,
    as_decimal,
    as_json,
    as_moment,
    as_single,
    clock,
    day,
    document,
    double,
    long,
    moment,
    money,
    single,
    whole,
    word,
)
from lab.debezium.source import SCHEMA, Connection, Source
from lab.faults.system import Kept, free_port
from tests.postgres import initialized

TEXT: Final = "{}::text"


def _texts(random: Random) -> list[str | None]:
    return [long(random), word(random), None][: random.randrange(4)]


def _huge(random: Random) -> str:
    return f"{random.randrange(10**38)}.{random.randrange(10**9)}"


def _span(random: Random) -> str:
    return f"{random.randrange(-500, 500)} days {random.randrange(10**6)} seconds"


class Postgres(Source):
    """On a port of loopback until ``exits`` closes."""

    connector = "debezium-connector-postgres"
    lost = (psycopg.OperationalError,)
    columns: ClassVar[Mapping[str, Column]] = {
        "small": Column("smallint", whole(16)),
        "whole": Column("integer", whole(32)),
        "big": Column("bigint", whole(64)),
        "single": Column("real", single, as_single, TEXT),
        "double": Column("double precision", double, float, TEXT),
        "price": Column("numeric(12, 3)", money, as_decimal),
        "amount": Column("numeric", _huge, as_decimal),
        "cash": Column("money", lambda random: str(random.randrange(10**9) / 100), as_decimal, "{}::numeric"),
        "sure": Column("boolean", lambda random: random.choice(["true", "false"]), as_bool),
        "flag": Column("bit(1)", lambda random: random.choice("01"), as_bool, "({} = B'1')::text"),
        "note": Column("text", long, is_long=True),
        "short": Column("varchar(40)", word),
        "code": Column("char(6)", lambda random: random.choice(["", "a", "abcdef"]), str, "rpad({}, 6)"),
        "uid": Column("uuid", lambda random: str(uuid.UUID(int=random.getrandbits(128)))),
        "mood": Column("mood", lambda random: random.choice(["sad", "ok", "happy"])),
        "day": Column("date", day),
        "clock": Column("time(3)", clock, lambda value: time.fromisoformat(str(value)), TEXT),
        "at": Column("timestamp(6)", moment(6), as_moment),
        "at_ms": Column("timestamp(3)", moment(3), as_moment),
        "moment": Column("timestamptz", moment(6), as_moment),
        "span": Column("interval", _span, int, "(extract(epoch FROM {}) * 1000000)::bigint"),
        "photo": Column(
            "bytea",
            lambda random: f"\\x{long(random).encode().hex()}",
            read="translate(encode({}, 'base64'), E'\\n', '')",
            is_long=True,
        ),
        "doc": Column("json", document, as_json, TEXT, is_long=True),
        "docb": Column("jsonb", document, as_json, TEXT, is_long=True),
        "tags": Column("text[]", _texts, as_json, "to_json({})::text", is_long=True),
        "counts": Column("integer[]", lambda random: [random.randrange(9)] * 3, as_json, "to_json({})::text"),
        "host": Column("inet", lambda random: f"10.0.{random.randrange(256)}.1", read="host({})"),
        "range": Column("int4range", lambda random: f"[1,{random.randrange(2, 99)})", read=TEXT),
    }

    def __init__(self, folder: Path, seed: int, exits: ExitStack) -> None:
        super().__init__(seed)
        server = initialized(folder / "postgres")
        self._port, self._user = free_port(), server.postgres_user
        command = [str(server.bin_path / "postgres"), "-D", str(server.pgdata), "-h", "127.0.0.1", "-k", ""]
        command += ["-p", str(self._port), "-c", "fsync=off", "-c", "wal_level=logical"]
        if server.system_user:
            user = pwd.getpwnam(server.system_user)
            ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            command = ["setpriv", *ids, *command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self.kept = Kept("postgres", command, folder, environment)
        exits.callback(self.kept.end)
        self._url = f"postgresql://{self._user}@127.0.0.1:{self._port}/postgres"

    @property
    def properties(self) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._port),
            "database.user": self._user,
            "database.password": "",
            "database.dbname": "postgres",
            "schema.include.list": SCHEMA,
        }

    def ddl(self, table: str) -> str:
        """By the command that writes it."""
        command = ["table", "create", "--from-postgres", self._url, f"{SCHEMA}.{table}"]
        written = subprocess.run(
            [sys.executable, "-m", "app.cli", *command], capture_output=True, text=True, check=True
        )
        return written.stdout

    def prepare(self, connection: Connection) -> None:
        columns = ", ".join(f"{name} {column.declared}" for name, column in self.columns.items())
        long_ones = [name for name, column in self.columns.items() if column.is_long]
        for statement in (
            f"CREATE SCHEMA {SCHEMA}",
            "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
            "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL)",
            f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
            f"ALTER TABLE kinds {', '.join(f'ALTER {name} SET STORAGE EXTERNAL' for name in long_ones)}",
            "CREATE TABLE orders (region text, id int, status text, note text, PRIMARY KEY (region, id))",
            "ALTER TABLE orders REPLICA IDENTITY FULL",
        ):
            connection.execute(statement)

    def connect(self) -> Connection:
        options = f"-c TimeZone=UTC -c search_path={SCHEMA}"
        return _Connection(psycopg.connect(self._url, options=options, autocommit=True))

    def mark(self, name: str) -> str:
        return f"%s::{self.columns[name].declared}"

    def on_conflict(self, keys: str) -> str:
        return f"ON CONFLICT ({keys}) DO UPDATE SET"

    def make_wider(self, connection: Connection) -> None:
        connection.execute("ALTER TABLE counters ALTER n TYPE bigint")


class _Connection:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(statement, values or None).rowcount

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        return self._connection.execute(query).fetchall()

    def transaction(self) -> AbstractContextManager[Any]:
        return self._connection.transaction()

    def close(self) -> None:
        self._connection.close()
