"""A handler's transaction: where it begins and ends, and what its handler may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.transactions import Reading, TableDep, TransactionRoute, Writing, in_one_thread


class Database:
    """Hands out itself, and notes the thread of each begin and end."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.tables = SimpleNamespace(get=lambda database, table: f"{database}/{table}")

    @contextmanager
    def transaction(self, kind: str = "write") -> Iterator[Database]:
        self.note(kind)
        try:
            yield self
        finally:
            self.note("end")

    def reading(self) -> Any:
        return self.transaction("read")

    def note(self, what: str) -> None:
        self.seen.append((what, threading.get_ident()))


def read(table: TableDep, repository: Reading, more: str = "") -> str:
    repository.note("handler")  # type: ignore[attr-defined]
    return f"{table} {more}"


def write(repository: Writing, table: TableDep) -> str:
    repository.note("handler")  # type: ignore[attr-defined]
    return str(table)


@pytest.mark.parametrize(("handler", "kind"), [(read, "read"), (write, "write")])
def test_a_transaction_begins_and_ends_in_the_thread_of_its_handler(handler: Any, kind: str) -> None:
    database, app = Database(), FastAPI()
    app.state.parts = SimpleNamespace(database=database, writers=None)
    route = TransactionRoute("/{database}/{table}", handler, methods=["GET"])
    app.router.routes.append(route)
    answer = TestClient(app).get("/a+b/t", params={"more": "x"})
    assert answer.json() == ("a+b/t x" if handler is read else "a+b/t")
    assert [what for what, _ in database.seen] == [kind, "handler", "end"]
    assert len({thread for _, thread in database.seen}) == 1


def test_a_table_that_is_known_takes_no_transaction_and_no_thread() -> None:
    def named(table: TableDep) -> str:
        threads.append(threading.current_thread().name)
        return str(table)

    database, app, threads = Database(), FastAPI(), list[str]()
    known: dict[Any, str] = {}
    views = SimpleNamespace(known_table=known.get, current_table=lambda name: database.tables.get(*name))
    app.state.parts = SimpleNamespace(database=database, views=views)
    app.router.routes.append(TransactionRoute("/{database}/{table}", named, methods=["GET"]))
    client = TestClient(app)
    assert client.get("/d/t").json() == "d/t"
    known["d", "t"] = "kept"
    assert client.get("/d/t").json() == "kept"
    assert client.get("/d/other").json() == "d/other"
    assert not database.seen
    assert [name.startswith("AnyIO worker") for name in threads] == [True, False, True]


def test_a_handler_with_a_transaction_cannot_be_async() -> None:
    async def both(repository: Reading) -> None: ...

    with pytest.raises(TypeError, match="both has a transaction"):
        in_one_thread(both)


def test_a_handler_without_one_is_left_alone() -> None:
    def plain(number: int) -> int:
        return number

    assert in_one_thread(plain) is plain
