"""Damaged files through HTTP: 503 by name for who needs the file, the list of what is known, ``keyfold verify``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.services.rows.kept_views import Views
from app.storage.images import Images
from tests.api.conftest import TABLES, Create, fields_of
from tests.service import keyfold
from tests.services.builders import merge_staged
from tests.services.damaged import files_in, flip, flipped, gone

TABLE = f"{TABLES}/wide"
OPTIONS = {"changelog-producer": "lookup", "merge.max-staleness": "1 d", "num-sorted-run.compaction-trigger": "50"}
READS = [
    *("/rows?key=1", "/rows/1", "/rows:scan", "/rows:count?exact=true&filter=id.gt.0", "/snapshots/1/changes"),
    "/changelog",
]


class Shop:
    """The table ``wide`` with three merged rows and a changelog."""

    def __init__(self, client: TestClient, app: FastAPI, table_id: str) -> None:
        self.client = client
        self.app = app
        self.id = table_id
        self.post(*({"id": number, "note": "n"} for number in range(3)))
        merge_staged(self.parts.database, self.parts.warehouse, table_id)
        self.forget()

    @property
    def parts(self) -> Parts:
        parts: Parts = self.app.state.parts
        return parts

    def post(self, *records: dict[str, Any]) -> str:
        return str(self.client.post(f"{TABLE}/batches", json={"records": records}).json()["id"])

    def forget(self) -> None:
        """As a process that has just begun, and that makes no images."""
        images = Images(self.parts.images.folder, self.parts.warehouse, 0)
        self.app.state.parts = replace(
            self.parts, views=Views(self.parts.database, self.parts.warehouse), images=images
        )

    def file(self, folder: str) -> Path:
        return files_in(self.parts.warehouse, self.id, folder)[-1]

    def get(self, path: str) -> Any:
        return self.client.get(f"{TABLE}{path}")

    def damage(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/damage").json()["damage"]
        return found


@pytest.fixture
def table(create: Create, shop: TestClient, app: FastAPI) -> Shop:
    return Shop(shop, app, create(options=OPTIONS)["id"])


def test_whoever_needs_a_damaged_file_is_reported_which_and_what_to_do(table: Shop) -> None:
    for folder, paths in (("runs", READS[:-1]), ("changelog", READS[-1:])):
        file = table.file(folder)
        for path in paths:
            for bad in (flipped(file, 20), flipped(file), gone(file)):
                with bad:
                    answer = table.get(path)
                reported = answer.json()
                assert (answer.status_code, reported["errorCode"]) == (503, "damaged_file"), path
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.headers["retry-after"] == "60"
                assert reported["resourceName"] == f"{table.id}/{folder}/{file.parent.name}/{file.name}"
                assert "restore it from a backup (" in reported["detail"]
                assert table.get(path).status_code == 200, path


def test_a_damaged_batch_is_reported_with_its_number_and_the_way_out(table: Shop) -> None:
    batch = table.post({"id": 1, "note": "later"})
    flip(table.file("staging"))
    answer = table.get("/rows?key=1")
    assert answer.status_code == 503
    assert f"or withdraw batch 2 (DELETE …/batches/{batch})" in answer.json()["detail"]
    assert table.client.post(f"{TABLE}/rows:batchGet", json={"keys": [{"id": 1}]}).status_code == 503
    assert table.get("/rows?key=1&consistency=merged").json()["note"] == "n"
    [known] = table.damage()
    assert table.client.delete(f"{TABLE}/batches/{known['batchId']}").status_code == 200
    assert table.get("/rows?key=1").json()["note"] == "n"
    assert table.damage() == []


def test_a_list_tells_all_that_is_known_and_has_pages(table: Shop) -> None:
    assert table.damage() == []
    file = table.file("runs")
    flip(file)
    table.get("/rows?key=1")
    table.get("/rows?key=2")
    [reported] = table.damage()
    found_at = reported.pop("foundAt")
    assert found_at > 1_700_000_000_000
    digest = reported["expected"].rpartition(" ")[2]
    assert reported == {
        "file": f"{table.id}/runs/{file.parent.name}/{file.name}",
        "kind": "run",
        "reason": "wrong_content",
        "expected": f"{file.stat().st_size} bytes, xxh3-128 {digest}",
        "found": "other bytes than were written, from byte 0 on",
        "batchId": None,
        "batchNumber": None,
        "runId": file.parent.name,
        "snapshotId": None,
    }

    for folder in ("runs", "changelog"):
        table.file(folder).unlink()
    table.get("/rows?key=1")
    table.get("/changelog")
    first = table.get("/damage?maxResults=1").json()
    second = table.client.get(f"{TABLE}/damage", params={"maxResults": 1, "pageToken": first["nextPageToken"]}).json()
    assert [one["kind"] for one in (*first["damage"], *second["damage"])] == ["changelog", "run"]
    assert second["nextPageToken"] is None


def test_damage_amid_a_long_answer_ends_it_and_is_kept(create: Create, client: TestClient, app: FastAPI) -> None:
    """What has gone out cannot be taken back; a server that is cut short sends no last chunk."""
    names = {"id": "BIGINT NOT NULL", "day": "INT NOT NULL", "note": "STRING"}
    fields = fields_of(**names)
    days = create("days", fields=fields, primaryKeys=["id", "day"], partitionKeys=["day"])["id"]
    records = [{"id": number, "day": day, "note": "x" * 20_000} for day in (1, 2) for number in range(100)]
    client.post(f"{TABLES}/days/batches", json={"records": records})
    parts: Parts = app.state.parts
    merge_staged(parts.database, parts.warehouse, days)
    whole = client.get(f"{TABLES}/days/rows:scan").content
    last = json.loads(whole.splitlines()[-1])["day"]
    runs = files_in(parts.warehouse, days, "runs")
    [second] = [path for path in runs if pq.ParquetFile(path).read(["day"])["day"][0].as_py() == last]
    with flipped(second):
        begun = client.get(f"{TABLES}/days/rows:scan", headers={"Accept-Encoding": "identity"}).content
    assert 2**20 < len(begun) < len(whole)
    assert whole.startswith(begun)
    [reported] = client.get(f"{TABLES}/days/damage").json()["damage"]
    assert (reported["kind"], reported["reason"]) == ("run", "wrong_content")
    assert reported["file"].endswith(f"{second.parent.name}/{second.name}")


@pytest.mark.slow(reason="starts processes")
def test_keyfold_verify_reads_everything_and_says_by_its_status_whether_it_is_well(table: Shop, tmp_path: Path) -> None:
    table.post({"id": 1, "note": "later"})
    well = keyfold("verify", "--data", tmp_path)
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout.startswith("4 files of ")
    assert well.stdout.endswith(" bytes read, 0 damaged or missing\n")
    flip(table.file("runs"))
    table.file("staging").unlink()
    bad = keyfold("verify", "--data", tmp_path)
    assert (bad.returncode, bad.stderr) == (1, "")
    lines = bad.stdout.splitlines()
    assert sorted(" ".join(line.split()[1:3]) for line in lines[:2]) == ["is damaged:", "is missing;"]
    assert lines[2].endswith(", 2 damaged or missing")
    assert len(table.damage()) == 2
    reported = json.loads(keyfold("verify", "--json", "--data", tmp_path).stdout)
    assert reported["files"] == 4
    assert {one["kind"]: one["reason"] for one in reported["damaged"]} == {"run": "wrong_content", "staging": "missing"}
    assert {**reported["damaged"][0]}.keys() - {"tableId"} == table.damage()[0].keys() - {"foundAt"}
    flip(table.file("runs"))
    assert keyfold("verify", "--data", tmp_path).returncode == 1
    assert [one["kind"] for one in table.damage()] == ["staging"]


@pytest.mark.slow(reason="starts processes")
def test_keyfold_verify_reports_the_faults_of_the_catalog(table: Shop, tmp_path: Path) -> None:
    with table.parts.database.transaction() as repository:
        repository.transaction.execute(sa.text("UPDATE data_files SET max_token = max_token - 1"))
    bad = keyfold("verify", "--data", tmp_path)
    assert (bad.returncode, bad.stderr) == (1, "")
    fault, end = bad.stdout.splitlines()
    assert fault.startswith("the catalog is damaged: run ")
    assert end.endswith("; 1 faults in the catalog: restore it (docs/damage.md, A damaged catalog)")
    reported = json.loads(keyfold("verify", "--json", "--data", tmp_path).stdout)
    assert (reported["damaged"], reported["catalog"]) == ([], [fault])
