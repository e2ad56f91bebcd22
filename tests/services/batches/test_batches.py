"""Ingest: all or nothing, durable before it is answered, and one batch per Idempotency-Key."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Conflict, ErrorCode, Invalid, KeyReused
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Table
from app.files.layout import Warehouse
from app.services.batches.batches import Accepted, Upload, accept_batch
from app.services.batches.group_commit import GroupCommit
from app.services.bodies.formats import JSON
from app.services.bodies.json_bodies import parse_json
from app.services.shared.executor import MergeSite
from tests.catalog.builders import CATALOGS
from tests.services.builders import batches_of, create_table, post
from tests.services.one_catalog import catalog_kind

__all__ = ["catalog_kind"]


def staged_files(warehouse: Warehouse, table: Table) -> set[str]:
    folder = Path(warehouse.path(table.id, "staging"))
    return {entry.name for entry in folder.iterdir()} if folder.exists() else set()


def accept(database: CatalogDatabase, warehouse: Warehouse, body: bytes, media_type: str = JSON) -> object:
    return accept_batch(database, warehouse, "shop", "wide", Upload(body, media_type), Bounds(3))


FAULTY = [
    b'{"records": [{"id": 1}, {"id": "x"}]}',
    b'{"records": [{"id": 1e99999999999999999999}]}',
    b'{"records": [{"id": 1, "n": NaN}]}',
    b'{"records": [{"id": 1}, 5]}',
    b'{"records": [{"id": 1}], "more": 1}',
    b'{"records": {}}',
    b'[{"id": 1}, 5]',
    b"",
    b"\xff\xfe",
    b'{"records": [' + b"[" * 100_000,
]


def test_a_request_with_a_fault_stores_nothing(database: CatalogDatabase, warehouse: Warehouse) -> None:
    table = create_table(database)
    for body in FAULTY:
        with pytest.raises(Invalid) as refusal:
            accept(database, warehouse, body)
        assert refusal.value.violations, body[:40]
        assert staged_files(warehouse, table) == set(), body[:40]
        assert batches_of(database, table) == [], body[:40]


@pytest.mark.parametrize("number", ["NaN", "-Infinity"])
def test_a_number_that_json_does_not_have_is_to_be_sent_as_text(
    database: CatalogDatabase, warehouse: Warehouse, number: str
) -> None:
    create_table(database)
    with pytest.raises(Invalid) as refusal:
        accept(database, warehouse, f'{{"records": [{{"id": 1, "n": {number}}}]}}'.encode())
    assert [fault.fix for fault in refusal.value.violations] == [f'send "{number}"']


def test_a_request_is_refused_while_the_first_with_its_key_is_under_way(site: MergeSite) -> None:
    table, commits = create_table(site.database), GroupCommit(site.database, site.warehouse)
    upload = Upload(b'{"records": [{"id": 1, "n": 1}]}', JSON, "k")
    with commits.keys.taking(table.id, "k"), pytest.raises(Conflict) as refusal:
        accept_batch(site.database, site.warehouse, "shop", "wide", upload, Bounds(3), commits)
    assert refusal.value.code is ErrorCode.REQUEST_IN_FLIGHT
    assert staged_files(site.warehouse, table) == set()
    first = accept_batch(site.database, site.warehouse, "shop", "wide", upload, Bounds(3), commits)
    again = accept_batch(site.database, site.warehouse, "shop", "wide", upload, Bounds(3), commits)
    assert (first.replayed, again) == (False, Accepted(first.batch, replayed=True))


@pytest.mark.parametrize("catalog_kind", CATALOGS)
@pytest.mark.parametrize("same", [True, False])
def test_requests_that_race_for_one_key_leave_one_batch_and_one_file(site: MergeSite, same: bool) -> None:
    table = create_table(site.database)

    def race(number: int) -> str:
        try:
            return post(site.database, site.warehouse, {"id": 1, "n": 0 if same else number}, key="k").id
        except (Conflict, KeyReused) as error:
            return error.code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(race, range(16)))
    [batch] = batches_of(site.database, table)
    assert set(answers) == ({batch.id} if same else {batch.id, "idempotency_key_reused"})
    assert staged_files(site.warehouse, table) == {batch.file}


def test_other_threads_go_on_while_a_large_body_is_parsed() -> None:
    body = b'{"records":[' + b",".join([b'{"id":1,"name":"a","note":"b"}'] * 300_000) + b"]}"
    parsing = threading.Thread(target=parse_json, args=[body])
    parsing.start()
    turns = 0
    while parsing.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 10
