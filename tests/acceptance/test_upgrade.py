"""Data folders that earlier versions made (``tests/upgrades``): migrated, read, verified, merged, backed up, restored,
as docs/backup.md says it is done.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import postgres_database
from tests.service import Client, TableClient, serving
from tests.upgrades.make import FOLDER, KEY, answered, answers, staged

ARCHIVES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))
NEWEST = max(path.name[:4] for path in (FOLDER.parent.parent / "migrations" / "versions").glob("0*.py"))


def keyfold(data: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments, "--data", str(data)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(client: Client, tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: answers(TableClient(client, "shop", name)) for name in tables}


def check_lookups(table: TableClient, rows: list[dict[str, Any]]) -> None:
    """Each row by its key, one by one and all at once."""
    names = table.client.get(table.path).json()["schema"]["primaryKeys"]
    for row in rows:
        assert table.get_row(*(str(row[name]) for name in names)).json() == row
    assert table.batch_get([{name: row[name] for name in names} for row in rows]) == rows


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_data_folder_of_an_earlier_version_is_taken_over(
    name: str, tmp_path: Path, postgres: str, spark_remote: str
) -> None:
    reported = json.loads((FOLDER / f"{name}.json").read_text())
    tables: dict[str, Any] = reported["tables"]
    data, kept = tmp_path / "data", tmp_path / "backups"
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    assert f"at revision {NEWEST}" in keyfold(data, "migrate")
    assert re.search(r"^[1-9]\d* files of \d+ bytes read, 0 damaged", keyfold(data, "verify"))
    with serving(data, spark_remote=spark_remote, idempotency_days="36500") as (_, client):
        client.headers["Authorization"] = f"Bearer {reported['token']}"
        assert read(client, tables) == tables
        orders = TableClient(client, "shop", "orders")
        again = orders.post_batch(staged("orders", 3), **{"Idempotency-Key": KEY})
        assert (again.status_code, again.headers["Idempotency-Replayed"]) == (202, "true"), again.text
        for one, expected in tables.items():
            table = TableClient(client, "shop", one)
            check_lookups(table, expected["latest"])
            assert table.merge()["state"] == "succeeded"
            assert answered(table, "rows:scan", consistency="merged") == expected["latest"]
            assert answered(table, "rows:scan", snapshot="before") == expected["tagged"]
        totals = TableClient(client, "shop", "totals")
        done = totals.finished(client.post(f"{totals.path}/compact", json={"full": True}).raise_for_status().json())
        assert done["state"] == "succeeded", done
        assert answered(totals, "rows:scan", consistency="merged") == tables["totals"]["latest"]
        totals.post_batch([{"day": "2026-03-01", "shop": "s4", "n": 1000}]).raise_for_status()
        after = read(client, tables)
    keyfold(data, "verify")
    keyfold(data, "backup", str(kept))
    with postgres_database(postgres, "upgraded") as url:
        new = tmp_path / "new"
        keyfold(new, "restore", str(kept), KEYFOLD_DATABASE_URL=url)
        keyfold(new, "verify", KEYFOLD_DATABASE_URL=url)
        with serving(new, workers="0", database_url=url) as (_, client):
            client.headers["Authorization"] = f"Bearer {reported['token']}"
            assert read(client, tables) == after


def test_there_is_a_data_folder_of_an_earlier_version() -> None:
    assert ARCHIVES
    assert sum((FOLDER / f"{name}.tar.xz").stat().st_size for name in ARCHIVES) < 300_000
