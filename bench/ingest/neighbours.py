"""Services that take the same rows and keep them elsewhere: what each needs, how it starts, where it takes bodies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import psycopg

from bench.over_http.stores import PEERS_PYTHON, Backed
from bench.served.processes import Server, started
from tests.postgres import postgres_server

PATIENCE_SECONDS = 30
SQLITE = "FastAPI, pydantic, SQLite"
COPY = "FastAPI, pydantic, PostgreSQL: COPY, no key"
INSERT = "FastAPI, pydantic, PostgreSQL: INSERT … ON CONFLICT, executemany"
UNNEST = "FastAPI, pydantic, PostgreSQL: INSERT … ON CONFLICT, unnest"
PAIMON, DELTA = "pypaimon, primary-key table", "delta-rs, append"
_IS_INSTALLED = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


@dataclass(frozen=True)
class Way:
    """A path that takes bodies of a format."""

    path: str
    body: str


@dataclass(frozen=True)
class Neighbour:
    """A service; ``ways`` have the names under which they are measured, ``needs`` are packages of the peers' Python."""

    ways: Mapping[str, Way]
    needs: Sequence[str]
    open: Callable[[Path], AbstractContextManager[Backed]]

    @property
    def missing(self) -> str:
        """How to get what is not there; empty where all is."""
        if self.needs and not PEERS_PYTHON.exists():
            return "the peers' Python is not there: make bench-ingest installs it"
        absent = [
            need
            for need in self.needs
            if subprocess.run([PEERS_PYTHON, "-c", _IS_INSTALLED, need], check=False).returncode
        ]
        install = f"{PEERS_PYTHON} -m pip install -r bench/requirements-peers.txt"
        return f"{' and '.join(absent)} not there: {install}" if absent else ""


@contextmanager
def _in_folder(name: str, python: str, folder: Path) -> Iterator[Backed]:
    own = folder / name
    own.mkdir()
    with _route(name, python, str(own), folder) as route:
        yield Backed(route)


@contextmanager
def _in_postgres(folder: Path) -> Iterator[Backed]:
    """A PostgreSQL with its own settings."""
    with postgres_server() as url:
        address = url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(address, autocommit=True) as connection:
            store = psutil.Process(connection.info.backend_pid).parent()
            assert store is not None
            _make_durable(connection)
        with _route("postgres_models", str(PEERS_PYTHON), address, folder) as route:
            yield Backed(route, Server("", store))


def _make_durable(connection: psycopg.Connection) -> None:
    """The tests' server does without fsync. Raises ``TimeoutError`` when that cannot be changed."""
    connection.execute("ALTER SYSTEM SET fsync = on")
    connection.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while connection.execute("SHOW fsync").fetchone() != ("on",):
        if time.monotonic() > deadline:
            raise TimeoutError("PostgreSQL goes on without fsync")
        time.sleep(0.05)


def _route(name: str, python: str, argument: str, folder: Path) -> AbstractContextManager[Server]:
    return started([python, "-m", f"bench.ingest.routes.{name}", argument], folder / f"{name}.log")


NEIGHBOURS = (
    Neighbour({SQLITE: Way("/upsert", "JSON")}, (), partial(_in_folder, "sqlite_models", sys.executable)),
    Neighbour(
        {COPY: Way("/copy", "JSON"), INSERT: Way("/insert", "JSON"), UNNEST: Way("/unnest", "JSON")},
        ("asyncpg", "fastapi"),
        _in_postgres,
    ),
    Neighbour(
        {PAIMON: Way("/write", "Arrow")},
        ("pypaimon", "fastapi"),
        partial(_in_folder, "paimon_rows", str(PEERS_PYTHON)),
    ),
    Neighbour(
        {DELTA: Way("/append", "Arrow")},
        ("deltalake", "fastapi"),
        partial(_in_folder, "delta_rows", str(PEERS_PYTHON)),
    ),
)
