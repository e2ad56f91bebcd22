"""A real service whose warehouse is a bucket of a real S3 server: what clients see while the store works, fails and
comes back. Merges are made by a worker in this process, without Spark, on the same catalog.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.merging.merges import request_merge
from app.services.shared.executor import MergeSite
from app.settings import Settings
from tests.object_store import CREDENTIALS, Fault, FaultyLine, new_bucket, objects_in, put, uri_of
from tests.service import Client, Service, TableClient, keyfold, serving
from tests.services.builders import run_next_merge
from tests.services.executor import PythonExecutor

SCHEMA = {
    "fields": [{"name": "id", "type": "INT"}, {"name": "n", "type": "BIGINT"}],
    "primaryKeys": ["id"],
    "options": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "merge.max-staleness": "1 d"},
}
BOUND_SECONDS = 30  # of what a client waits for a store that does not answer, whatever its system does; seen: 4
PRODUCERS = 4


@dataclass
class House:
    """A service, its bucket, and who merges beside it."""

    data: Path
    root: str
    service: Service
    client: Client
    table: TableClient
    warehouse: Warehouse = field(init=False)

    def __post_init__(self) -> None:
        self.warehouse = Warehouse(self.root)

    def merge(self) -> None:
        database = CatalogDatabase(Settings(KEYFOLD_DATA=self.data).catalog_url)
        with database.reading() as repository:
            table_id = repository.tables.get("shop", "sums").id
        request_merge(database, table_id)
        assert run_next_merge(MergeSite(database, self.warehouse, PythonExecutor(), 600), "worker")
        database.close()

    def total(self, key: int, **how: str) -> int | None:
        answer = self.table.get_row(str(key), **how)
        return answer.json()["n"] if answer.status_code == 200 else None


@contextmanager
def housed(data: Path, root: str, **environment: str) -> Iterator[House]:
    with serving(data, warehouse=root, workers="0", **environment) as (service, client):
        yield House(data, root, service, client, TableClient(client, "shop", "sums"))


@pytest.fixture(scope="module")
def line(s3_endpoint: str) -> Iterator[FaultyLine]:
    """A line to the store, for all of this file; processes inherit what a client needs to be let in."""
    opened = FaultyLine(s3_endpoint)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield opened
    opened.close()


@pytest.fixture
def root(s3_endpoint: str, line: FaultyLine) -> str:
    return uri_of(new_bucket(s3_endpoint), line.endpoint)


@pytest.fixture(scope="module")
def served(s3_endpoint: str, line: FaultyLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with housed(tmp_path_factory.mktemp("house") / "data", uri_of(new_bucket(s3_endpoint), line.endpoint)) as opened:
        opened.client.create_database("shop")
        yield opened


@pytest.fixture
def house(served: House, line: FaultyLine) -> Iterator[House]:
    """The same service, with a table of its own."""
    served.client.create_table("shop", "sums", SCHEMA).raise_for_status()
    yield served
    line.heal()
    served.client.wait_ready()
    served.client.delete(served.table.path).raise_for_status()


def sooner_or_later(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def arrow() -> bytes:
    sink = io.BytesIO()
    rows = pa.table({"id": pa.array([1], pa.int32()), "n": [1]})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "n": [1]}), sink)
    return sink.getvalue()


BODIES = {
    "application/json": b'{"records": [{"id": 1, "n": 1}]}',
    "application/x-ndjson": b'{"id": 1, "n": 1}\n',
    "text/csv": b"id,n\n1,1\n",
    "application/vnd.apache.arrow.stream": arrow(),
    "application/vnd.apache.parquet": parquet(),
}


def test_batches_of_every_format_are_merged_looked_up_and_scanned(house: House) -> None:
    for kind, body in BODIES.items():
        answer = house.client.post(f"{house.table.path}/batches", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 202, answer.text
    assert (house.total(1), house.total(1, consistency="merged")) == (5, None)
    house.merge()
    house.table.post_batch([{"id": 2, "n": 7}]).raise_for_status()
    house.merge()
    assert (house.total(1, consistency="merged"), house.total(2)) == (5, 7)
    lines = house.client.get(f"{house.table.path}/rows:scan").raise_for_status().text.splitlines()
    assert sorted(lines) == ['{"id":1,"n":5}', '{"id":2,"n":7}']
    files = house.client.get(f"{house.table.path}/files").json()["files"]
    start = f"s3://{house.warehouse.path()}/"
    assert {file["uri"].removeprefix(start) for file in files} == {
        one for one in objects_in(house.warehouse) if "/runs/" in one
    }
    # Made by a process of its own, of objects that it fetches.
    sooner_or_later(lambda: len(list((house.data / "images").rglob("*.image"))) >= len(files))
    assert house.total(1, consistency="merged") == 5


def test_a_store_that_fails_is_reported_in_time_and_the_service_comes_back_by_itself(
    house: House, line: FaultyLine
) -> None:
    house.table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
    house.merge()
    for seen, fault in enumerate((Fault.SLOW_DOWN, Fault.SILENCE, Fault.LOST_ANSWER, Fault.REFUSAL)):
        line.fail(fault)
        check_told(house, fault.name)
        line.heal()
        house.client.wait_ready()
        house.table.post_batch([{"id": 1, "n": 1}], **{"Idempotency-Key": fault.name}).raise_for_status()
        house.table.post_batch([{"id": 1, "n": 1}], **{"Idempotency-Key": fault.name}).raise_for_status()
        assert house.total(1) == 2 + seen
    log = "".join(house.service.lines)
    assert "Traceback" not in log
    assert not [value for value in CREDENTIALS.values() if value.startswith(("AKIA", "a-secret")) and value in log]


def check_told(house: House, key: str) -> None:
    """A batch and a row that needs an object are refused in time, and readiness blames nothing else."""
    began = time.monotonic()
    for answer in (
        house.table.post_batch([{"id": 1, "n": 1}], **{"Idempotency-Key": key}),
        house.client.get(f"{house.table.path}/rows:scan"),
    ):
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) >= 1
        assert "the object store" in answer.json()["detail"]
    assert time.monotonic() - began < BOUND_SECONDS
    sooner_or_later(lambda: house.client.get("/readyz").status_code == 503)
    reasons = house.client.get("/readyz").json()["reasons"]
    assert reasons.keys() == {"warehouse"}
    assert "answer" in reasons["warehouse"] or "the object store" in reasons["warehouse"]
    assert house.client.get("/healthz").status_code == 200


class Producers:
    """Each posts one batch after the other of 1 for its own key, again with the same Idempotency-Key until it is
    acknowledged; ``acknowledged`` are how many of whom.
    """

    def __init__(self, address: Callable[[], str]) -> None:
        self.acknowledged = [0] * PRODUCERS
        self._address = address
        self._stopped = threading.Event()

    def post(self, key: int) -> None:
        while not self._stopped.is_set():
            self._post(key, f"{key}-{self.acknowledged[key]}")
            self.acknowledged[key] += 1

    def _post(self, key: int, name: str) -> None:
        while True:
            try:
                answer = httpx.post(
                    f"{self._address()}/v1/catalog/databases/shop/tables/sums/batches",
                    json={"records": [{"id": key, "n": 1}]},
                    headers={"Idempotency-Key": name},
                    timeout=BOUND_SECONDS,
                    trust_env=False,
                )
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code in {200, 202}:
                return
            assert answer.status_code in {409, 503}, answer.text
            time.sleep(0.05)

    def stop(self) -> None:
        self._stopped.set()


def test_what_was_acknowledged_is_there_once_after_kills_and_faults(
    root: str, line: FaultyLine, tmp_path: Path
) -> None:
    address = ""
    producers = Producers(lambda: address)
    with ThreadPoolExecutor(PRODUCERS) as pool:
        for round_, fault in enumerate((Fault.LOST_ANSWER, Fault.SLOW_DOWN)):
            with housed(tmp_path / "data", root, processes="2") as house:
                address = house.service.url
                if not round_:
                    house.client.create_database("shop")
                    house.client.create_table("shop", "sums", SCHEMA).raise_for_status()
                    posting = [pool.submit(producers.post, key) for key in range(PRODUCERS)]
                least = [count + 3 for count in producers.acknowledged]
                sooner_or_later(lambda least=least: all(map(int.__ge__, producers.acknowledged, least)))  # type: ignore[misc]
                line.fail(fault, times=20)
                sooner_or_later(lambda: line.healed)
                house.merge()
                house.service.kill()
        with housed(tmp_path / "data", root, processes="2") as house:
            address = house.service.url
            producers.stop()
            for one in posting:
                one.result(BOUND_SECONDS)
            assert [house.total(key) for key in range(PRODUCERS)] == producers.acknowledged
            house.merge()
            assert [house.total(key, consistency="merged") for key in range(PRODUCERS)] == producers.acknowledged


def test_a_bucket_is_backed_up_put_back_into_another_bucket_and_verified(
    house: House, store: str, line: FaultyLine, tmp_path: Path
) -> None:
    house.table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
    house.merge()
    house.table.post_batch([{"id": 1, "n": 2}]).raise_for_status()
    done = keyfold("backup", tmp_path / "kept", "--data", house.data, KEYFOLD_WAREHOUSE=house.root)
    assert done.returncode == 0, done.stderr
    new, other = tmp_path / "new", uri_of(new_bucket(store), line.endpoint)
    done = keyfold("restore", tmp_path / "kept", "--data", new, KEYFOLD_WAREHOUSE=other)
    assert done.returncode == 0, done.stderr
    path = next(one for one in objects_in(Warehouse(other)) if "/runs/" in one)
    put(Warehouse(other), path, b"something else")
    done = keyfold("verify", "--data", new, KEYFOLD_WAREHOUSE=other)
    assert done.returncode == 1
    assert path in done.stdout
    assert "1 damaged or missing" in done.stdout
    line.fail(Fault.SLOW_DOWN)
    done = keyfold("backup", tmp_path / "kept more", "--data", new, KEYFOLD_WAREHOUSE=other)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "the object store has too much to do" in done.stderr


def test_the_embedded_spark_merges_in_a_bucket(root: str, tmp_path: Path) -> None:
    with serving(tmp_path / "data", warehouse=root, workers="1") as (_, client):
        client.create_database("shop")
        client.create_table("shop", "sums", {**SCHEMA, "options": {}}).raise_for_status()
        table = TableClient(client, "shop", "sums")
        table.post_batch([{"id": 1, "n": 5}]).raise_for_status()
        sooner_or_later(lambda: table.get_row("1", consistency="merged").status_code == 200)
        assert table.get_row("1", consistency="merged").json() == {"id": 1, "n": 5}


def test_credentials_in_the_uri_are_refused_without_being_repeated(tmp_path: Path) -> None:
    done = keyfold(
        "serve", "--port", "0", "--data", tmp_path / "data", KEYFOLD_WAREHOUSE="s3://AKIA:hidden@bucket/house"
    )
    assert done.returncode == 1
    assert "KEYFOLD_WAREHOUSE" in done.stderr
    assert "hidden" not in done.stderr + done.stdout
