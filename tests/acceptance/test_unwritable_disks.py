"""Disks that are full, read-only or gone under a real service: 503 with the reason, nothing half, and back by itself.

A small disk is a tmpfs, which only root may mount; where that is not permitted these tests are skipped, and
``tests/services/batches/test_admission.py`` has what can be seen without.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from app.services.upkeep.sweeps import sweep
from app.settings import Settings
from tests.acceptance.processes import SCHEMA
from tests.service import Client, TableClient, serving

PATIENCE_SECONDS = 30
DISK_BYTES = 4 * 2**20
RECORDS = [{"id": number, "n": Random(number).getrandbits(62)} for number in range(2000)]  # 8 bytes each in the file


class Disk:
    """A small disk of its own, at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave: int = 0) -> None:
        """Write until there is no room, but for ``leave`` bytes."""
        with open(self.path / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
            file.truncate(max(0, file.tell() - leave))

    def free(self) -> None:
        """What ``fill`` has taken."""
        (self.path / "filler").unlink()

    def mount(self, how: str) -> None:
        """Mount again, ``ro`` or ``rw``."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)


@contextmanager
def mounted(path: Path) -> Iterator[Disk]:
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "disk") as disk:
        yield disk


def make_table(client: Client, name: str = "wide") -> TableClient:
    if client.get("/v1/catalog/databases/shop").status_code == 404:
        client.create_database("shop")
    client.create_table("shop", name, SCHEMA).raise_for_status()
    return TableClient(client, "shop", name)


def check_refusal(answer: httpx.Response, reason: str, code: str | None = "warehouse_not_writable") -> None:
    assert answer.status_code == 503, answer.text
    body = answer.json()
    assert body["errorCode"] == "unavailable"
    assert reason in body["detail"]
    assert [fault["code"] for fault in body["errors"]] == ([] if code is None else [code])
    assert int(answer.headers["retry-after"]) > 0


def ready(client: Client, wanted: Callable[[httpx.Response], bool]) -> dict[str, Any]:
    """What ``/readyz`` says once it is ``wanted``: it looks every few seconds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not wanted(answer := client.get("/readyz")):
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    reported: dict[str, Any] = answer.json()
    return reported


def batches(table: TableClient) -> list[int]:
    params = {"maxResults": 1000, "order": "oldest"}
    answer = table.client.get(f"{table.path}/batches", params=params).raise_for_status()
    return [batch["number"] for batch in answer.json()["batches"]]


def staging_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/staging/*"))


def test_merges_on_a_full_disk_are_one_line_each_and_go_on_once_there_is_room(
    tmp_path: Path, disk: Disk, spark_remote: str
) -> None:
    settings = {"warehouse": str(disk.path), "least_free_mib": "0", "spark_remote": spark_remote}
    with serving(tmp_path / "data", **settings) as (service, client):
        small, large = make_table(client), make_table(client, "large")
        small.post_batch(RECORDS[:900]).raise_for_status()
        large.post_batch(RECORDS).raise_for_status()
        disk.fill()
        for table in (small, large):
            failed = table.merge()
            assert failed["error"].startswith("the warehouse cannot be written: its disk is full; make room"), failed
        full = [line for line in service.lines if " a disk is full: make room on it" in line]
        assert len([line for line in full if "ERROR app.services.merging.leases: merge " in line]) == 2
        assert "Traceback" not in "".join(service.lines)
        assert [client.get(f"{table.path}/damage").json()["damage"] for table in (small, large)] == [[], []]
        disk.free()
        assert [table.merge()["state"] for table in (small, large)] == ["succeeded", "succeeded"]
        assert small.get_row("1", consistency="merged").json() == RECORDS[1]


def test_a_full_data_folder_is_one_line_a_minute_and_no_traceback(tmp_path: Path, disk: Disk) -> None:
    with serving(disk.path / "data", least_free_mib="0") as (service, client):
        table = make_table(client)
        table.post_batch(RECORDS).raise_for_status()
        assert table.merge()["state"] == "succeeded"
        table.post_batch(RECORDS[:900]).raise_for_status()
        begun = len(service.lines)
        disk.fill(leave=48 * 1024)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            client.post(f"{table.path}/merges")
            assert table.get_row("1").status_code == 200  # asks for an image
            time.sleep(0.5)
        lines = service.lines[begun:]
        assert "Traceback" not in "".join(lines)
        assert len([line for line in lines if "the worker waits" in line]) < 20
        disk.free()
        assert table.merge()["state"] == "succeeded"


def test_a_full_warehouse_takes_no_batch_and_is_written_again_once_there_is_room(tmp_path: Path, disk: Disk) -> None:
    with serving(tmp_path / "data", warehouse=str(disk.path), workers="0", least_free_mib="0") as (_, client):
        table = make_table(client)
        table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
        disk.fill(leave=12 * 1024)  # less than the file needs: it fails in its middle
        for _ in range(3):
            check_refusal(table.post_batch(RECORDS), "the warehouse cannot be written: its disk is full")
        assert len(staging_files(disk.path)) == 1  # nothing is left of what could not be written
        disk.fill()
        check_refusal(table.post_batch([{"id": 2, "n": 2}]), "its disk is full")
        reported = ready(client, lambda answer: answer.status_code == 503)
        assert (reported["catalog"], reported["warehouse"], reported["spark"]) == (True, False, True)
        assert reported["reasons"] == {"warehouse": "its disk is full"}
        assert table.get_row("1").json() == {"id": 1, "n": 1}
        assert table.get_row("2").status_code == 404
        assert client.get("/healthz").status_code == 200
        disk.free()
        assert table.post_batch(RECORDS).json()["number"] == 2
        ready(client, lambda answer: answer.status_code == 200)
        assert batches(table) == [1, 2]


def test_a_disk_below_its_least_room_takes_no_batch(tmp_path: Path, disk: Disk) -> None:
    with serving(tmp_path / "data", warehouse=str(disk.path), workers="0", least_free_mib="2") as (_, client):
        table = make_table(client)
        table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
        disk.fill(leave=2**20)
        check_refusal(table.post_batch([{"id": 2, "n": 2}]), "(KEYFOLD_LEAST_FREE_MIB)", "no_room")
        disk.free()
        table.post_batch([{"id": 2, "n": 2}]).raise_for_status()
        assert batches(table) == [1, 2]


def test_a_read_only_warehouse_takes_no_batch_and_a_table_dropped_then_is_swept_later(
    tmp_path: Path, disk: Disk
) -> None:
    with serving(tmp_path / "data", warehouse=str(disk.path), workers="0", least_free_mib="0") as (_, client):
        table, dropped = make_table(client), make_table(client, "dropped")
        withdrawn = table.post_batch([{"id": 1, "n": 1}]).raise_for_status().json()["id"]
        dropped.post_batch([{"id": 1, "n": 1}]).raise_for_status()
        disk.mount("ro")
        check_refusal(table.post_batch([{"id": 2, "n": 2}]), "it is read-only")
        assert ready(client, lambda answer: answer.status_code == 503)["reasons"] == {"warehouse": "it is read-only"}
        assert client.delete(dropped.path).status_code == 200
        assert client.delete(f"{table.path}/batches/{withdrawn}").json()["state"] == "deleted"
        assert client.get(dropped.path).status_code == 404
        assert len(staging_files(disk.path)) == 2
        disk.mount("rw")
        ready(client, lambda answer: answer.status_code == 200)
        swept(tmp_path / "data", disk)
        assert staging_files(disk.path) == []
        assert [one.name for one in disk.path.iterdir() if one.is_dir()] == [client.get(table.path).json()["id"]]
        assert table.post_batch([{"id": 3, "n": 3}]).json()["number"] == 2


def swept(data: Path, disk: Disk) -> None:
    """A sweep as the worker does it, but for the hour that files have."""
    database = CatalogDatabase(Settings(KEYFOLD_DATA=data).catalog_url)
    sweep(database, Warehouse(str(disk.path)), timedelta(seconds=-10))
    database.close()


def test_a_catalog_on_a_full_disk_takes_no_batch_and_none_is_lost_or_half(tmp_path: Path, disk: Disk) -> None:
    data = disk.path / "data"
    with serving(data, warehouse=str(tmp_path / "warehouse"), workers="0", least_free_mib="0") as (_, client):
        table = make_table(client)
        table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
        disk.fill()
        taken = [1]
        for number in range(2, 200):  # until the log of SQLite needs more than it has
            answer = table.post_batch([{"id": number, "n": number}])
            if answer.status_code == 503:
                break
            taken.append(answer.json()["number"])
        check_refusal(answer, "the catalog does not answer now (its disk is full)", None)
        assert table.get_row("1", consistency="merged").status_code == 404
        disk.free()
        after = table.post_batch([{"id": 1000, "n": 1000}])
        assert after.status_code == 202, after.text
        assert batches(table) == [*taken, after.json()["number"]]
        assert [table.get_row(str(number)).status_code for number in taken] == [200] * len(taken)
