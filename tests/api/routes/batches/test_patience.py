"""A request waits in place of being refused, where what is in its way goes in a moment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.routes.batches.patience import with_retries
from app.core.errors import Conflict, Unavailable
from tests.api.conftest import DATABASES, TABLES, Opened, new_table, parts_of
from tests.services.builders import merge_staged

URL = f"{TABLES}/wide/batches"


def with_table(client: TestClient) -> TestClient:
    assert client.post(TABLES, json=new_table()).status_code == 200
    return client


@pytest.fixture
def roomy(opened: Opened) -> TestClient:
    """A client of a service with the table ``wide``."""
    return with_table(opened())


@pytest.fixture
def full(opened: Opened) -> TestClient:
    """The same, whose staging area is full."""
    client = with_table(opened(staged_table_records=1))
    assert post(client, 1).status_code == 202
    return client


def post(client: TestClient, number: int) -> Any:
    return client.post(URL, json={"records": [{"id": number}]})


def test_a_full_staging_area_is_waited_for(full: TestClient) -> None:
    parts, table_id = parts_of(full), full.get(f"{TABLES}/wide").json()["id"]
    merging = threading.Timer(0.3, merge_staged, [parts.database, parts.warehouse, table_id])
    merging.start()
    answer = post(full, 2)
    merging.join()
    assert answer.status_code == 202, answer.text


def test_who_waits_in_vain_is_told_when_to_come_again(full: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.routes.batches.patience.PATIENCE_SECONDS", 0.5)
    answer = post(full, 2)
    assert (answer.status_code, answer.json()["errorCode"]) == (429, "staging_full")
    assert answer.headers["Retry-After"] == "5"
    many = full.post(f"{DATABASES}/shop/batches", json={"tables": {"wide": {"records": [{"id": 2}]}}})
    assert many.status_code == 429


def test_a_warehouse_that_is_away_for_a_moment_is_waited_for(roomy: TestClient, tmp_path: Path) -> None:
    """Nothing is stored meanwhile, so a request without a key may be tried again."""
    assert post(roomy, 1).status_code == 202
    warehouse, away = tmp_path / "warehouse", tmp_path / "away"
    warehouse.rename(away)
    back = threading.Timer(0.5, away.rename, [warehouse])
    back.start()
    answer = post(roomy, 2)
    back.join()
    assert answer.status_code == 202, answer.text


def test_a_catalog_that_does_not_answer_is_waited_for_with_a_key(roomy: TestClient) -> None:
    """A try may have been stored though its answer was lost: without a key another one would count it twice."""
    tries: list[str | None] = []

    async def ask(key: str | None) -> str:
        def work() -> str:
            tries.append(key)
            if len(tries) < 3:
                raise Unavailable("the connection to the catalog was lost")
            return "stored"

        return await with_retries(parts_of(roomy), key, work)

    assert roomy.portal is not None
    with pytest.raises(Unavailable):
        roomy.portal.call(ask, None)
    assert roomy.portal.call(ask, "k") == "stored"
    assert tries == [None, "k", "k"]


def test_a_table_that_others_alter_meanwhile_is_waited_for(roomy: TestClient) -> None:
    """Nothing is stored meanwhile; a conflict that does not pass is answered at once."""
    errors: list[Conflict] = []

    async def ask(retry_seconds: float | None) -> str:
        def work() -> str:
            if len(errors) < 2:
                errors.append(Conflict("altered again and again", retry_seconds=retry_seconds))
                raise errors[-1]
            return "stored"

        return await with_retries(parts_of(roomy), None, work)

    assert roomy.portal is not None
    with pytest.raises(Conflict):
        roomy.portal.call(ask, None)
    assert roomy.portal.call(ask, 1) == "stored"
    assert len(errors) == 2
