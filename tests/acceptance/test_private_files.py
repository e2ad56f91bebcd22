"""What a service writes is its user's alone, whatever umask it was started with; and its secrets stay secret."""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.core.access import Role
from tests.postgres import TEMPLATE, postgres_database
from tests.service import Client, Service, TableClient, keyfold, summed

PASSWORD = "hunter2-of-the-catalog"  # noqa: S105  # of nothing
SCHEMA = summed(changelog_producer="lookup", num_sorted_run__compaction_trigger="99")


@dataclass
class Worked:
    """A service that was started with umask 0 and a password in its catalog's URL, and has done all kinds of work."""

    service: Service
    client: Client
    secrets: dict[str, str]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> Iterator[Worked]:
    data = tmp_path_factory.mktemp("private") / "data"
    with postgres_database(postgres, f"t{uuid.uuid4().hex}", TEMPLATE) as url:
        catalog = sa.make_url(url).set(password=PASSWORD).render_as_string(hide_password=False)
        environment = {"KEYFOLD_DATABASE_URL": catalog, "KEYFOLD_AUDIT_LOG": str(data / "audit.jsonl")}
        boss = _made(data, environment)
        service = Service(data, {**environment, "KEYFOLD_SPARK_HEAP_MIB": "1024"}, umask=0)
        try:
            headers = {"Authorization": f"Bearer {boss}"}
            with Client(base_url=service.url, timeout=120, trust_env=False, headers=headers) as client:
                wish = {"name": "till", "role": Role.READ, "on": ["shop.*"]}
                till = client.post("/v1/tokens", json=wish).json()["token"]
                client.wait_ready()
                _work(client)
                yield Worked(service, client, {"boss": boss, "till": till, "catalog": PASSWORD})
        finally:
            service.stop()


def _made(data: Path, environment: dict[str, str]) -> str:
    """A token that the program made, with umask 0."""
    return keyfold("token", "create", "boss", "--data", data, umask=0, **environment).stdout.strip()


def _work(client: Client) -> None:
    client.create_database("shop")
    client.create_table("shop", "wide", SCHEMA).raise_for_status()
    table = TableClient(client, "shop", "wide")
    for n in range(2):
        table.post_batch([{"id": 1, "n": n}]).raise_for_status()
        assert table.merge()["state"] == "succeeded"
    compaction = client.post(f"{table.path}/compact").raise_for_status().json()
    assert table.finished(compaction)["state"] == "succeeded"
    table.post_batch([{"id": number, "n": 1} for number in range(1000)]).raise_for_status()  # stays staged or not
    deadline = time.monotonic() + 60
    while client.get(f"{table.path}/stats").json()["images"]["made"] == 0:
        table.get_row("1", consistency="merged").raise_for_status()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_every_file_and_folder_is_its_users_alone(worked: Worked) -> None:
    data = worked.service.data
    # Not rglob: a folder that Spark or a merge removes meanwhile makes it fail.
    found = [data, *(Path(folder, name) for folder, inner, files in os.walk(data) for name in (*inner, *files))]
    names = {path.name for path in found}
    assert {"warehouse", "runs", "staging", "changelog", "images", "spark", "spark.log", "audit.jsonl"} <= names
    assert {".parquet", ".image"} <= {path.suffix for path in found}
    assert _open_to_others(found) == {}


def _open_to_others(paths: list[Path]) -> dict[str, str]:
    """The modes of those that others can read; a file that a merge has removed meanwhile is nobody's."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            found |= {str(path): oct(mode)} if mode & 0o077 else {}
    return found


def test_an_embedded_catalog_is_its_users_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert keyfold("token", "create", "boss", "--data", data, umask=0).returncode == 0
    found = [data, *data.iterdir()]
    assert data / "catalog.sqlite" in found
    assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_a_folder_that_was_open_before_is_reported_with_the_fix(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    service = Service(data, {"KEYFOLD_WORKERS": "0"})
    service.stop()
    reported = [line for line in service.lines if "is open to other users" in line]
    assert len(reported) == 1
    assert f"chmod -R g-rwx,o-rwx {data}" in reported[0]


def test_secrets_are_in_no_command_line_log_or_answer(worked: Worked) -> None:
    client = worked.client
    headers = {"Authorization": f"Bearer {worked.secrets['till']}x"}
    reported = [client.get("/readyz").text, client.get("/openapi.json").text, client.get("/v1/tokens").text]
    reported += [client.get("/v1/config", headers=headers).text, client.post("/v1/tokens", content=b"{").text]
    reported += ["".join(worked.service.lines)]
    reported += [path.read_text(errors="replace") for path in worked.service.data.rglob("*.log")]
    reported += [(worked.service.data / "audit.jsonl").read_text()]
    reported += [path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    for name, secret in worked.secrets.items():
        assert [text[:200] for text in reported if secret in text] == [], name
