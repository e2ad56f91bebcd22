"""A client over the real application: its own catalog and warehouse in a fresh folder, and nothing that merges."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.document.document import operations_in
from app.api.shared.deps import Parts
from app.core.table.history import CatalogTask
from app.main import create_app
from app.settings import Settings
from tests.builders import settings_with
from tests.services.builders import merge_staged

DATABASES = "/v1/catalog/databases"
TABLES = f"{DATABASES}/shop/tables"
LOOPBACK = "http://localhost"  # a name that a service without tokens answers to
Create = Callable[..., dict[str, Any]]
Merge = Callable[..., CatalogTask]
Opened = Callable[..., TestClient]


def fields_of(**types: str) -> list[dict[str, Any]]:
    """The fields of a schema by name and type; each has its place as its id."""
    return [{"id": place, "name": name, "type": kind} for place, (name, kind) in enumerate(types.items())]


def new_table(name: str = "wide", **schema: Any) -> dict[str, Any]:
    """The body that creates a valid table of the database ``shop``; ``schema`` replaces members of its schema."""
    fields = fields_of(id="BIGINT NOT NULL", note="STRING")
    whole = {"fields": fields, "partitionKeys": [], "primaryKeys": ["id"], "options": {}, "comment": None}
    return {"identifier": {"database": "shop", "object": name}, "schema": whole | schema}


@pytest.fixture(scope="session")
def built_app(tmp_path_factory: pytest.TempPathFactory) -> tuple[FastAPI, Path]:
    """An application, and the link to the folder that its next lifespan works in: to build its routes takes longer than
    most tests.
    """
    return _built(tmp_path_factory.getbasetemp() / "app")


@cache  # the tests of the console have the fixture, too, and it would be another one there
def _built(folder: Path) -> tuple[FastAPI, Path]:
    folder.mkdir()
    return create_app(Settings(KEYFOLD_DATA=folder / "data", workers=0)), folder / "data"


@pytest.fixture
def app(built_app: tuple[FastAPI, Path], tmp_path: Path, sqlite_template: Path) -> FastAPI:
    built, link = built_app
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path)
    shutil.copyfile(sqlite_template, tmp_path / "catalog.sqlite")
    return built


@cache
def _statuses(app: FastAPI) -> dict[str, set[int]]:
    return {
        operation["operationId"]: {int(status) for status in operation["responses"] if status.isdigit()}
        for operation in operations_in(app.openapi())
    }


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, LOOPBACK, raise_server_exceptions=False) as opened:
        opened.event_hooks["response"] = [partial(declared, app)]
        yield opened


def declared(app: FastAPI, answer: Any) -> None:
    """Every answer of every test has a status that the OpenAPI document says of its operation; 500 is its default."""
    request = answer.request
    scope = {"type": "http", "method": request.method, "path": request.url.path, "raw_path": request.url.raw_path}
    asked = app.state.operations.routed({**scope, "raw_path": request.url.raw_path.split(b"?")[0]})
    if asked is not None and answer.status_code != 500:
        statuses = _statuses(app).get(asked.operation.id)
        assert statuses is None or answer.status_code in statuses, (asked.operation.id, answer.status_code)


@pytest.fixture
def shop(client: TestClient) -> TestClient:
    """A client of a catalog that has the database ``shop``."""
    assert client.post(DATABASES, json={"name": "shop"}).status_code == 200
    return client


@pytest.fixture
def create(shop: TestClient) -> Create:
    """Creates a valid table in ``shop`` and returns it as the service shows it."""

    def create_table(name: str = "wide", **schema: Any) -> dict[str, Any]:
        response = shop.post(TABLES, json=new_table(name, **schema))
        assert response.status_code == 200, response.text
        created: dict[str, Any] = response.json()
        return created

    return create_table


@pytest.fixture
def wide(create: Create, shop: TestClient) -> TestClient:
    """A client of a catalog that has the valid table ``wide`` in ``shop``."""
    create()
    return shop


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens services with settings of their own, which have the database ``shop``."""
    with ExitStack() as services:

        def open_service(address: str = "testclient", **settings: Any) -> TestClient:
            app = create_app(settings_with(**{"KEYFOLD_DATA": tmp_path, "workers": 0, **settings}))
            client = TestClient(app, LOOPBACK, raise_server_exceptions=False, client=(address, 50_000))
            services.enter_context(client)
            assert client.post(DATABASES, json={"name": "shop"}).status_code == 200
            return client

        yield open_service


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Callable[[str], str]]]:
    """The service of ``tests/api/walk.py``, for a file whose tests take nothing away from it."""
    from tests.api.walk import filled_catalog  # noqa: PLC0415  # which imports this file

    with filled_catalog(tmp_path_factory.mktemp("walked")) as walked:
        yield walked


def parts_of(client: TestClient) -> Parts:
    """What is open in the service of a client."""
    assert isinstance(client.app, FastAPI)
    parts: Parts = client.app.state.parts
    return parts


def faults_of(answer: Any) -> list[tuple[str, str]]:
    """The pointers and codes of a refusal."""
    return [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


@pytest.fixture
def merge(app: FastAPI, shop: TestClient) -> Merge:
    """Posts records to a table of ``shop``, if there are any, and merges what is staged there."""

    def merge_table(*records: Mapping[str, Any], name: str = "wide") -> CatalogTask:
        if records:
            answer = shop.post(f"{TABLES}/{name}/batches", json={"records": records})
            assert answer.status_code == 202, answer.text
        parts: Parts = app.state.parts
        with parts.database.reading() as repository:
            table = repository.tables.get("shop", name)
        return merge_staged(parts.database, parts.warehouse, table.id)

    return merge_table
