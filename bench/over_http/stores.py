"""Redis and PostgreSQL on this machine, filled with the rows of a table as Keyfold scans them, and their routes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx
import msgspec
import psutil
import psycopg

from bench.reads.orders import BIGINT
from bench.served.processes import Server, started
from tests.postgres import postgres_server

PEERS_PYTHON = Path(".venv-peers/bin/python")
PATIENCE_SECONDS = 30
ROWS_AT_ONCE = 10_000
SQL_TYPES = {"DOUBLE": "DOUBLE PRECISION", "STRING": "TEXT"}


@dataclass(frozen=True)
class Backed:
    """A route and the store behind it, where that is a separate process."""

    route: Server
    store: Server | None = None


@contextmanager
def redis_rows(folder: Path, table: str, keyfold: httpx.Client) -> Iterator[Backed]:
    """A Redis without persistence, each row under its key as JSON."""
    path = folder / "redis.socket"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            with _connected(path) as connection, keyfold.stream("GET", f"{table}/rows:scan") as scan:
                _fill_redis(connection, scan.iter_lines())
            with _route("redis_rows", str(path), folder) as route:
                yield Backed(route, Server("", psutil.Process(process.pid)))
        finally:
            process.terminate()


@contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with socket.socket(socket.AF_UNIX) as connection:
        while connection.connect_ex(str(path)) != 0:
            if time.monotonic() > deadline:
                raise TimeoutError("redis-server does not listen")
            time.sleep(0.05)
        yield connection


class _Identified(msgspec.Struct):
    id: int


def _fill_redis(connection: socket.socket, lines: Iterator[str]) -> None:
    """MSET of many rows at a time, in Redis's own protocol."""
    key = msgspec.json.Decoder(_Identified)
    while some := [line.encode() for line in islice(lines, ROWS_AT_ONCE)]:
        words = [b"MSET"]
        for line in some:
            words += [str(key.decode(line).id).encode(), line]
        connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        answer = connection.recv(64)
        assert answer == b"+OK\r\n", answer


@contextmanager
def postgres_rows(folder: Path, table: str, keyfold: httpx.Client) -> Iterator[Backed]:
    """A PostgreSQL with its own settings, the rows in typed columns with a primary key."""
    with postgres_server() as url:
        address = url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(address, autocommit=True) as connection:
            store = psutil.Process(connection.info.backend_pid).parent()
            assert store is not None
            _fill_postgres(connection, table, keyfold)
        with _route("postgres_rows", address, folder) as route:
            yield Backed(route, Server("", store))


def _fill_postgres(connection: psycopg.Connection, table: str, keyfold: httpx.Client) -> None:
    columns = ", ".join(f"{name} {SQL_TYPES.get(kind, kind)}" for name, kind in BIGINT.columns.items())
    connection.execute(f"CREATE TABLE orders ({columns})".encode())
    into = f"COPY orders ({', '.join(BIGINT.columns)}) FROM STDIN (FORMAT csv, HEADER)"
    with (
        keyfold.stream("GET", f"{table}/rows:scan", headers={"Accept": "text/csv"}) as scan,
        connection.cursor() as cursor,
        cursor.copy(into.encode()) as copy,
    ):
        for piece in scan.iter_bytes():
            copy.write(piece)
    for statement in (b"ALTER TABLE orders ADD PRIMARY KEY (id)", b"VACUUM ANALYZE orders", b"CHECKPOINT"):
        connection.execute(statement)


def _route(name: str, address: str, folder: Path) -> AbstractContextManager[Server]:
    command = [str(PEERS_PYTHON), "-m", f"bench.over_http.routes.{name}", address]
    return started(command, folder / f"{name}.log")


@dataclass(frozen=True)
class Store:
    """A store to compare with; ``open`` fills it with the rows of the table at a path of Keyfold's API."""

    name: str
    needs: Sequence[Path | str]
    get: str
    open: Callable[[Path, str, httpx.Client], AbstractContextManager[Backed]]

    @property
    def missing(self) -> str:
        """How to get what is not there; empty where all is."""
        absent = [need for need in self.needs if shutil.which(need) is None]
        return "; ".join(INSTALL[need] for need in absent)


INSTALL: Mapping[Path | str, str] = {
    PEERS_PYTHON: "the peers' Python is not there: make bench-serve installs it",
    "redis-server": "Redis is not there: apt-get install redis-server",
}
STORES = (
    Store("FastAPI and Redis", (PEERS_PYTHON, "redis-server"), "redis.asyncio, rows as JSON", redis_rows),
    Store("FastAPI and PostgreSQL", (PEERS_PYTHON,), "asyncpg, JSON of typed columns", postgres_rows),
)
