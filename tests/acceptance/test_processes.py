"""Several processes of one service, and of several: what one was told every other one sees."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.catalog.database import CatalogDatabase
from app.services.access.tokens import create_token
from tests.acceptance.processes import PATIENCE_SECONDS, Several, several
from tests.acceptance.test_restart import until
from tests.catalog.conftest import catalog_kind, catalog_url, empty_catalog_url
from tests.service import Service, TableClient, keyfold

__all__ = ["catalog_kind", "catalog_url", "empty_catalog_url"]
CLIENTS, ROUNDS = 40, 3


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of three processes, for all that do not end it."""
    with several(tmp_path_factory.mktemp("three")) as opened:
        yield opened.service


@pytest.fixture
def service(three: Service) -> Iterator[Several]:
    """The same, without a table."""
    with ExitStack() as stack:
        yield Several(three, stack)
        table = Several(three, stack).table()
        table.client.delete(table.path)


def check_own_writes(posting: TableClient, looking: TableClient, number: int) -> int:
    """How often a client, on another connection than it posted on, did not see at once what it had been told."""
    wrong = 0
    for total in range(1, ROUNDS + 1):
        batch = posting.post_batch([{"id": number, "n": 1}, {"id": -1, "n": 1}])
        assert batch.status_code == 202, batch.text
        answer = looking.get_row(str(number))
        seen = answer.json().get("n") if answer.status_code == 200 else None
        wrong += seen != total or int(answer.headers["Keyfold-Batch"]) < batch.json()["number"]
    return wrong


def check_own_writes_of_many(service: Several) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        table = service.make_table()
        clients = [(service.table(), service.table(), number) for number in range(CLIENTS)]
        assert sum(pool.map(lambda one: check_own_writes(*one), clients)) == 0
        assert table.get_row("-1").json()["n"] == CLIENTS * ROUNDS


def test_every_client_sees_its_own_writes_at_once_whichever_process_it_asks(service: Several) -> None:
    check_own_writes_of_many(service)


@pytest.mark.parametrize("catalog_kind", ["postgresql"], indirect=True)
def test_so_does_every_client_where_the_catalog_is_postgresql(tmp_path: Path, catalog_url: str) -> None:
    with several(tmp_path / "data", database_url=catalog_url) as service:
        check_own_writes_of_many(service)


@pytest.mark.parametrize("catalog_kind", ["postgresql"], indirect=True)
def test_two_services_with_folders_of_their_own_see_each_others_writes(tmp_path: Path, catalog_url: str) -> None:
    shared = {"database_url": catalog_url, "warehouse": str(tmp_path / "warehouse")}
    with several(tmp_path / "a", 1, **shared) as here, several(tmp_path / "b", 1, **shared) as there:
        posting = here.make_table()
        looking = there.table()
        for total in range(1, 30):
            posting.post_batch([{"id": 1, "n": 1}]).raise_for_status()
            assert looking.get_row("1").json()["n"] == total
        merged = looking.get_row("1", consistency="merged")
        assert (merged.status_code, merged.headers["Keyfold-Batch"]) == (404, "0")
        looking.client.delete(looking.path).raise_for_status()
        wait_until_gone(posting)


def wait_until_gone(table: TableClient) -> None:
    """Returns once the table is not answered any more."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while table.get_row("1", consistency="merged").json()["errorCode"] != "table_not_found":
        assert time.monotonic() < deadline


def test_a_dropped_altered_or_replaced_table_is_seen_by_every_process_at_once(service: Several) -> None:
    tables = [service.table() for _ in range(8)]
    for turn in range(5):
        made = service.make_table()
        made.post_batch([{"id": 1, "n": turn}]).raise_for_status()
        assert {table.get_row("1").json()["n"] for table in tables} == {turn}
        added = {"changes": [{"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}]}
        made.client.post(made.path, json=added).raise_for_status()
        assert {tuple(table.get_row("1").json()) for table in tables} == {("id", "n", "more")}
        made.client.delete(made.path).raise_for_status()
        assert {table.get_row("1").json()["errorCode"] for table in tables} == {"table_not_found"}


def test_a_process_that_is_killed_is_started_again_and_the_others_go_on(service: Several) -> None:
    service.make_table().post_batch([{"id": 1, "n": 1}]).raise_for_status()
    killed, *others = service.children()
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while killed in (now := service.children()) or len(now) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert {*others} < {*now}
    until(lambda: any("ended by SIGKILL (Killed) after" in line for line in service.service.lines), "a line of the log")
    assert {service.table().get_row("1").text for _ in range(8)} == {'{"id":1,"n":1}'}


@pytest.mark.parametrize(
    ("count", "end", "status"),
    [
        (1, signal.SIGTERM, 0),
        (1, signal.SIGINT, 130),
        (2, signal.SIGTERM, 0),
        (2, signal.SIGINT, 130),
        (2, signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_all_processes_end_with_the_first(tmp_path: Path, count: int, end: signal.Signals, status: int) -> None:
    with several(tmp_path / "data", count) as service:
        service.make_table()
        pids = service.children()
        assert len(pids) == (0 if count == 1 else count)
        service.service.process.send_signal(end)
        assert service.service.process.wait(PATIENCE_SECONDS) == status
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(lives(pid) for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(httpx.TransportError):
            service.client().get("/healthz")


def lives(pid: int) -> bool:
    """Whether the process runs: one that ended without being waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_second_service_does_not_share_the_port_of_the_first(service: Several, tmp_path: Path) -> None:
    port = str(urlsplit(service.service.url).port)
    ended = keyfold("serve", "--processes", "2", "--data", tmp_path / "other", "--port", port)
    assert (ended.returncode, "cannot listen" in ended.stderr) == (1, True)


def test_a_retry_on_another_process_is_one_batch(service: Several) -> None:
    with ThreadPoolExecutor(8) as pool:
        table = service.make_table()
        tables = [service.table() for _ in range(16)]
        answers = list(pool.map(lambda one: one.post_batch([{"id": 1, "n": 1}], **{"Idempotency-Key": "k"}), tables))
        assert {answer.status_code for answer in answers} <= {202, 409}, "409 while the first is under way"
        assert len({answer.json()["id"] for answer in answers if answer.status_code == 202}) == 1
        replayed = table.post_batch([{"id": 1, "n": 1}], **{"Idempotency-Key": "k"})
        assert (replayed.status_code, replayed.headers["Idempotency-Replayed"]) == (202, "true")
        assert table.get_row("1").json()["n"] == 1


def test_a_process_that_serves_loads_no_pandas(service: Several) -> None:
    service.make_table()
    for _ in range(40):  # connections, so that each process has some
        assert service.table().post_batch([{"id": 1, "n": 1}]).status_code == 202
    loaded = [Path(f"/proc/{pid}/maps").read_text() for pid in service.children()]
    assert ["/pyarrow/" in maps for maps in loaded] == [True] * 3
    assert ["/pandas/" in maps for maps in loaded] == [False] * 3


def test_lookups_go_on_while_the_working_process_merges(working: Several) -> None:
    ended = threading.Event()
    reported = [0]

    def look(mine: TableClient) -> list[str]:
        wrong = []
        while not ended.is_set():
            least = reported[0]
            answer = mine.get_row("1")
            if least and (answer.status_code != 200 or not least <= answer.json()["n"] <= reported[0] + 1):
                wrong.append(f"{least}: {answer.text}")
        return wrong

    assert len(working.children()) == 3
    table = working.make_table("looked_at")
    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look, working.table("looked_at")) for _ in range(3)]
        try:
            for total in range(1, 13):
                table.post_batch([{"id": 1, "n": 1}]).raise_for_status()
                reported[0] = total
                if total % 4 == 0:
                    assert table.merge()["state"] == "succeeded"
        finally:
            ended.set()
        assert working.table("looked_at").get_row("1", consistency="merged").json()["n"] == 12
        assert [one.result() for one in looking] == [[], [], []]


def test_tokens_made_and_revoked_beside_a_running_service_hold_in_all_processes_at_once(tmp_path: Path) -> None:
    with several(tmp_path / "data", 2) as service:
        clients = [service.client() for _ in range(8)]
        database = CatalogDatabase(f"sqlite:///{tmp_path}/data/catalog.sqlite")

        def answers(token: str = "") -> set[int]:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return {client.get("/v1/config", headers=headers).status_code for client in clients}

        assert answers() == {200}
        first, second = create_token(database, "first"), create_token(database, "second")
        assert answers() == {401}
        assert answers(first) == answers(second) == {200}
        with database.transaction() as repository:
            repository.tokens.revoke("first")
        assert answers(first) == {401}
        assert answers(second) == {200}
        database.close()
