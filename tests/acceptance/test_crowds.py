"""Promise 1 with a crowd: many clients post at once, so that batches share transactions, and ``kill -9`` ends it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx

from tests.service import Client, Service

CLIENTS = 16
SCHEMA = {
    "fields": [{"name": "id", "type": "BIGINT"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {},
}


def post_until_killed(url: str, poster: int, answered: list[int]) -> None:
    """Posts one batch after the other; the keys of those that were answered 202 go to ``answered``."""
    with Client(base_url=url, timeout=60, trust_env=False) as client:
        for number in range(100_000):
            key = poster * 100_000 + number
            path = "/v1/catalog/databases/shop/tables/crowd/batches"
            try:
                answer = client.post(path, json={"records": [{"id": key, "n": poster}]})
            except httpx.HTTPError:
                return
            assert answer.status_code == 202, answer.text
            answered.append(key)


def test_what_a_crowd_was_answered_before_kill_9_is_there(tmp_path: Path) -> None:
    settings = {"KEYFOLD_WORKERS": "0"}
    service = Service(tmp_path, settings)
    answered: list[list[int]] = [[] for _ in range(CLIENTS)]
    with Client(base_url=service.url, timeout=60, trust_env=False) as client:
        client.create_database("shop")
        client.create_table("shop", "crowd", SCHEMA).raise_for_status()
        posting = [
            threading.Thread(target=post_until_killed, args=(service.url, number, answered[number]))
            for number in range(CLIENTS)
        ]
        for thread in posting:
            thread.start()
        time.sleep(4)
        service.kill()
        for thread in posting:
            thread.join()
    keys = [key for some in answered for key in some]
    assert len(keys) > CLIENTS
    again = Service(tmp_path, settings)
    try:
        with Client(base_url=again.url, timeout=60, trust_env=False) as client:
            table = "/v1/catalog/databases/shop/tables/crowd"
            for at in range(0, len(keys), 500):
                asked = {"keys": [{"id": key} for key in keys[at : at + 500]]}
                answer = client.post(f"{table}/rows:batchGet?consistency=latest", json=asked)
                assert all(row["found"] for row in answer.json()["rows"])
    finally:
        again.stop()
