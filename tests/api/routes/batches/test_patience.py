"""A request waits in place of being refused, where what is in its way goes in a moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.routes.batches.patience import stored
from app.core.errors import Unavailable
from app.main import create_app
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.services.builders import merge_staged

URL = f"{TABLES}/wide/batches"


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FastAPI, TestClient]]:
    """A table whose staging area is full."""
    monkeypatch.setattr("app.settings.Settings.staged_table_records", 1)
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0))
    with TestClient(app, LOOPBACK) as client:
        client.post(DATABASES, json={"name": "shop"})
        assert client.post(TABLES, json=new_table()).status_code == 200
        assert post(client, 1).status_code == 202
        yield app, client


def post(client: TestClient, number: int) -> Any:
    return client.post(URL, json={"records": [{"id": number}]})


def test_a_full_staging_area_is_waited_for(full: tuple[FastAPI, TestClient]) -> None:
    app, client = full
    parts, table_id = app.state.parts, client.get(f"{TABLES}/wide").json()["id"]
    merging = threading.Timer(0.3, merge_staged, [parts.database, parts.warehouse, table_id])
    merging.start()
    answer = post(client, 2)
    merging.join()
    assert answer.status_code == 202, answer.text


def test_who_waits_in_vain_is_told_when_to_come_again(
    full: tuple[FastAPI, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.routes.batches.patience.PATIENCE_SECONDS", 0.5)
    answer = post(full[1], 2)
    assert (answer.status_code, answer.json()["errorCode"]) == (429, "staging_full")
    assert answer.headers["Retry-After"] == "5"
    many = full[1].post(f"{DATABASES}/shop/batches", json={"tables": {"wide": {"records": [{"id": 2}]}}})
    assert many.status_code == 429


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[tuple[FastAPI, TestClient]]:
    app = create_app(Settings(KEYFOLD_DATA=tmp_path, workers=0))
    with TestClient(app, LOOPBACK) as client:
        client.post(DATABASES, json={"name": "shop"})
        assert client.post(TABLES, json=new_table()).status_code == 200
        yield app, client


def test_a_warehouse_that_is_away_for_a_moment_is_waited_for(roomy: tuple[FastAPI, TestClient], tmp_path: Path) -> None:
    """Nothing is stored meanwhile, so a request without a key may be tried again."""
    assert post(roomy[1], 1).status_code == 202
    warehouse, away = tmp_path / "warehouse", tmp_path / "away"
    warehouse.rename(away)
    back = threading.Timer(0.5, away.rename, [warehouse])
    back.start()
    answer = post(roomy[1], 2)
    back.join()
    assert answer.status_code == 202, answer.text


def test_a_catalog_that_does_not_answer_is_waited_for_with_a_key(roomy: tuple[FastAPI, TestClient]) -> None:
    """A try may have been stored though its answer was lost: without a key another one would count it twice."""
    app, client = roomy
    tries: list[str | None] = []

    async def ask(key: str | None) -> str:
        def work() -> str:
            tries.append(key)
            if len(tries) < 3:
                raise Unavailable("the connection to the catalog was lost")
            return "stored"

        return await stored(app.state.parts, "shop", key, work)

    assert client.portal is not None
    with pytest.raises(Unavailable):
        client.portal.call(ask, None)
    assert client.portal.call(ask, "k") == "stored"
    assert tries == [None, "k", "k"]
