"""MariaDB with a binary log as a source. Debezium's connector is that of MySQL, which reads the same log."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import time
from pathlib import Path
from typing import Any, ClassVar, Final

import pymysql

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
from lab.debezium.source import SCHEMA, Connection, Impossible, Source
from lab.faults.system import Kept, free_port

TEXT: Final = "CAST({} AS CHAR)"
BASE64: Final = "REPLACE(TO_BASE64({}), '\\n', '')"
# What the connector of MySQL asks of a server depends on its version; of this one, MariaDB has all.
_VERSION: Final = "5.7.19"
_ORDER: Final = "'fields.log_pos.from-event' = 'source.pos', 'sequence.field' = 'log_pos'"
_TABLES: Final = {
    "counters": "id INT, n INT, log_pos BIGINT, PRIMARY KEY (id) NOT ENFORCED",
    "kinds": "id INT, {}, log_pos BIGINT, PRIMARY KEY (id) NOT ENFORCED",
    "orders": (
        "region STRING, id INT, status STRING, note STRING, log_pos BIGINT, PRIMARY KEY (region, id) NOT ENFORCED"
    ),
}
# Rows of before show the default of an added column in such a table.
_KINDS: Final = (
    "'merge-engine' = 'partial-update', 'record.absent-columns' = 'unchanged', "
    "'partial-update.remove-record-on-delete' = 'true'"
)


class Mariadb(Source):
    """On a port of loopback until ``exits`` closes. Raises ``Impossible`` where it is not installed."""

    connector = "debezium-connector-mysql"
    lost = (pymysql.err.OperationalError, pymysql.err.InterfaceError)
    columns: ClassVar[Mapping[str, Column]] = {
        "tiny": Column("tinyint", whole(8), kind="TINYINT"),
        "tiny_u": Column("tinyint unsigned", whole(8, signed=False), kind="SMALLINT"),
        "sure": Column("tinyint(1)", lambda random: random.choice("01"), as_bool, kind="BOOLEAN"),
        "small": Column("smallint", whole(16), kind="SMALLINT"),
        "middle": Column("mediumint unsigned", whole(24, signed=False), kind="INT"),
        "whole": Column("int", whole(32), kind="INT"),
        "whole_u": Column("int unsigned", whole(32, signed=False), kind="BIGINT"),
        "big": Column("bigint", whole(64), kind="BIGINT"),
        "big_u": Column("bigint unsigned", whole(64, signed=False), as_decimal, kind="DECIMAL(20, 0)"),
        "single": Column("float", single, as_single, "CAST({} AS DOUBLE)", kind="FLOAT"),
        "dbl": Column("double", double, float, kind="DOUBLE"),
        "price": Column("decimal(12, 3)", money, as_decimal, kind="DECIMAL(12, 3)"),
        "flag": Column("bit(1)", lambda random: random.choice([0, 1]), as_bool, "{} + 0", kind="BOOLEAN"),
        "note": Column("longtext", long, kind="STRING"),
        "short": Column("varchar(40)", word, kind="STRING"),
        "code": Column("char(6)", lambda random: random.choice(["", "a", "abcdef"]), kind="STRING"),
        "mood": Column(
            "enum('sad', 'ok', 'happy')", lambda random: random.choice(["sad", "ok", "happy"]), kind="STRING"
        ),
        "several": Column("set('a', 'b', 'c')", lambda random: random.choice(["", "a", "a,c"]), kind="STRING"),
        "raw": Column("varbinary(20)", lambda random: random.randbytes(8), read=BASE64, kind="BYTES"),
        "fixed": Column("binary(4)", lambda random: random.randbytes(3), read=BASE64, kind="BYTES"),
        "photo": Column("longblob", lambda random: long(random).encode(), read=BASE64, kind="BYTES"),
        "day": Column("date", day, kind="DATE"),
        "clock": Column("time(3)", clock, lambda value: time.fromisoformat(str(value)), TEXT, kind="TIME(3)"),
        "at": Column("datetime(6)", moment(6), as_moment, TEXT, kind="TIMESTAMP(6)"),
        "at_ms": Column("datetime(3)", moment(3), as_moment, TEXT, kind="TIMESTAMP(3)"),
        "moment": Column("timestamp(6) null", moment(6, 10**6, 2 * 10**9), as_moment, TEXT, kind="TIMESTAMP_LTZ(6)"),
        "since": Column("year", lambda random: str(random.randrange(1901, 2156)), int, kind="INT"),
        "doc": Column("json", document, as_json, kind="STRING"),
    }

    def __init__(self, folder: Path, seed: int, exits: ExitStack) -> None:
        super().__init__(seed)
        if shutil.which("mariadbd") is None:
            raise Impossible("there is no mariadbd here (Debian: apt install mariadb-server)")
        data, self._port, self._folder = folder / "mariadb", free_port(), folder
        user = "mysql" if os.getuid() == 0 else ""  # as root it refuses to run
        names = [f"--user={user}"] if user else []
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                *names,
                "--auth-root-authentication-method=normal",
            ],
            check=True,
            capture_output=True,
        )
        command = ["mariadbd", "--no-defaults", *names, f"--datadir={data}", f"--socket={data / 'socket'}"]
        command += [f"--port={self._port}", "--bind-address=127.0.0.1", f"--version={_VERSION}", "--server-id=1"]
        command += ["--log-bin=bin", "--binlog-format=ROW", "--binlog-row-image=FULL", "--character-set-server=utf8mb4"]
        self.kept = Kept("mariadb", command, folder, dict(os.environ))
        exits.callback(self.kept.end)

    @property
    def properties(self) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._port),
            "database.user": "root",
            "database.password": "",
            "database.server.id": "2",
            "database.include.list": SCHEMA,
            "bigint.unsigned.handling.mode": "precise",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self._folder / "schemas"),
        }

    def ddl(self, table: str) -> str:
        columns = ", ".join(f"{name} {column.kind}" for name, column in self.columns.items())
        options = f"'events.source' = '{SCHEMA}.{table}', {_ORDER}" + (f", {_KINDS}" if table == "kinds" else "")
        return f"CREATE TABLE {table} ({_TABLES[table].format(columns)}) WITH ({options})"

    def prepare(self, connection: Connection) -> None:
        columns = ", ".join(f"{name} {column.declared}" for name, column in self.columns.items())
        for statement in (
            f"CREATE DATABASE {SCHEMA}",
            f"USE {SCHEMA}",
            "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL)",
            f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
            "CREATE TABLE orders (region varchar(9), id int, status text, note longtext, PRIMARY KEY (region, id))",
        ):
            connection.execute(statement)

    def connect(self) -> Connection:
        return _Connection(
            pymysql.connect(
                host="127.0.0.1",
                port=self._port,
                user="root",
                autocommit=True,
                charset="utf8mb4",
                init_command="SET time_zone = '+00:00'",
            )
        )

    def mark(self, name: str) -> str:
        return "%s"

    def on_conflict(self, keys: str) -> str:
        return "ON DUPLICATE KEY UPDATE"

    def make_wider(self, connection: Connection) -> None:
        connection.execute("ALTER TABLE counters MODIFY n bigint NOT NULL")


class _Connection:
    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        with connection.cursor() as cursor:
            cursor.execute("SHOW DATABASES LIKE %s", [SCHEMA])
            if cursor.fetchone():
                connection.select_db(SCHEMA)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        with self._connection.cursor() as cursor:
            return int(cursor.execute(statement, values or None))

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    def transaction(self) -> AbstractContextManager[Any]:
        return self._in_transaction()

    @contextmanager
    def _in_transaction(self) -> Iterator[None]:
        self._connection.begin()
        yield
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
