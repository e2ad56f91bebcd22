"""Large bodies over a real socket: the process that takes them stays small."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Client, Service, serving

BATCHES = "/v1/catalog/databases/shop/tables/notes/batches"
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Client]]:
    """A service that does not merge, with a table."""
    with serving(tmp_path_factory.mktemp("service"), workers="0") as (service, client):
        client.create_database("shop")
        fields = [{"name": "id", "type": "BIGINT"}, {"name": "note", "type": "STRING"}]
        schema = {"fields": fields, "partitionKeys": [], "primaryKeys": ["id"], "options": {}, "comment": None}
        client.create_table("shop", "notes", schema).raise_for_status()
        client.post(BATCHES, content=b'{"id": 0}\n', headers=NDJSON).raise_for_status()
        yield service, client


def most_memory(service: Service) -> int:
    """Bytes that the process has ever had in memory."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{service.process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def body(megabytes: int) -> bytes:
    """Records of 64 KiB, so that most of the time goes into bytes."""
    note = "x" * 65_000
    return b"".join(json.dumps({"id": n, "note": f"{n}{note}"}).encode() + b"\n" for n in range(16 * megabytes))


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_body_of_many_pieces_takes_the_memory_of_few(service: tuple[Service, Client], encoding: str) -> None:
    process, client = service
    large = body(128)
    sent = gzip.compress(large, 1) if encoding else large
    before = most_memory(process)
    answer = client.post(BATCHES, content=sent, headers={**NDJSON, "Content-Encoding": encoding})
    assert answer.status_code == 202
    assert answer.json()["records"] == 2048
    # Held whole, it was there six times over.
    assert most_memory(process) - before < len(large)
    assert not [*(process.data / "uploads").iterdir()]


def test_a_retry_of_a_large_body_is_the_same_batch(service: tuple[Service, Client]) -> None:
    _, client = service
    keyed = {**NDJSON, "Idempotency-Key": "once"}
    first, again = (client.post(BATCHES, content=body(8), headers=keyed).json() for _ in range(2))
    assert first == again
    assert client.post(BATCHES, content=body(9), headers=keyed).json()["errorCode"] == "idempotency_key_reused"
