"""What the senders of ``docs/senders.md`` send, as they are set there: one event of two has a fault, one no table."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import DATABASES, TABLES, Create, fields_of

PAGE = (Path(__file__).parents[4] / "docs" / "senders.md").read_text()
URLS: Final = [urlsplit(url) for url in re.findall(r"http://127\.0\.0\.1:8080(/v1\S+/batches\?[^\s\"]+)", PAGE)]


def event(table: str, key: int, v: object, lsn: int) -> dict[str, Any]:
    payload = {"op": "c", "before": None, "after": {"id": key, "v": v}}
    return {"payload": payload | {"source": {"schema": "inventory", "table": table, "lsn": lsn}}}


EVENTS: Final = [event("t", 1, 5, 10), event("t", 2, 1_000, 11), event("elsewhere", 1, 1, 12), event("t", 1, 4, 9)]
BODY: Final = json.dumps(EVENTS, separators=(",", ":")).encode()
JSON: Final = {"Content-Type": "application/json"}
# What each adds to the list of events: Kafka Connect and Benthos were watched, Vector is as its source says.
SENDERS: Final[Mapping[str, tuple[dict[str, str], bytes]]] = {
    "Kafka Connect": ({"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEA"}, BODY),
    "Redpanda Connect": ({"User-Agent": "Go-http-client/1.1", "Idempotency-Key": "9f2c" * 16}, BODY),
    "Vector": ({"Content-Encoding": "gzip", "Accept-Encoding": "identity"}, gzip.compress(BODY)),
}


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("url", sorted({f"{url.path}?{url.query}" for url in URLS}))
def test_what_senders_send_is_stored_or_set_aside(create: Create, shop: TestClient, sender: str, url: str) -> None:
    create(
        "t",
        fields=fields_of(id="INT NOT NULL", v="TINYINT", n="BIGINT"),
        primaryKeys=["id"],
        options={"fields.n.from-event": "source.lsn", "sequence.field": "n"},
    )
    more, body = SENDERS[sender]
    for _ in range(2):  # at least once
        answer = shop.post(url, content=body, headers=JSON | more)
        assert answer.status_code == 202, answer.text
    assert shop.get(f"{TABLES}/t/rows/1").json() == {"id": 1, "v": 5, "n": 10}
    [kept] = shop.get(f"{TABLES}/t/set-aside-events").json()["events"]
    assert json.loads(kept["event"])["payload"] == EVENTS[1]["payload"]


def test_each_sender_posts_to_the_url_of_the_database() -> None:
    assert [url.path for url in URLS] == [f"{DATABASES}/shop/batches"] * (1 + len(SENDERS))
    assert all(f"\n## {sender}\n" in PAGE for sender in SENDERS)


def test_the_list_that_each_sender_makes_is_a_batch_of_plain_records(create: Create, shop: TestClient) -> None:
    create("t", fields=fields_of(id="INT NOT NULL", v="INT"), primaryKeys=["id"])
    [prefix], [suffix] = (re.findall(rf"batch\.{end}=(.)", PAGE) for end in ("prefix", "suffix"))
    body = prefix + ",".join(json.dumps({"id": key, "v": 1}) for key in (1, 2)) + suffix
    assert shop.post(f"{TABLES}/t/batches", content=body, headers=JSON).json()["records"] == 2
