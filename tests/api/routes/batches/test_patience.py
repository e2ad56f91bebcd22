"""A request waits in place of being refused, where what is in its way goes in a moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

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
