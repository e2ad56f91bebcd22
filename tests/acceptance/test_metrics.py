"""The metrics of a service of several processes: whichever is asked tells what all have done, also the dead."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.acceptance.processes import PATIENCE_SECONDS, Several, several
from tests.telemetry.test_metrics import Series, named, series

CONNECTIONS = 12  # so that each process has some


def scrapes(service: Several) -> list[Series]:
    """The metrics over as many connections."""
    return [series(service.client().get("/metrics").raise_for_status().text) for _ in range(CONNECTIONS)]


def memories(found: Series) -> set[str]:
    return {dict(labels)["process"] for name, labels in found if name == "process_resident_memory_bytes"}


def test_every_process_tells_what_all_have_done_also_one_that_was_killed(tmp_path: Path) -> None:
    with several(tmp_path / "data", 2) as service:
        service.make_table()
        for number in range(CONNECTIONS):
            service.table().post_batch([{"id": number, "n": 1}]).raise_for_status()
            assert service.table().get_row(str(number)).status_code == 200
        for found in scrapes(service):
            assert named(found, "keyfold_requests_total", operation="postBatch", status="2xx") == CONNECTIONS
            assert named(found, "keyfold_requests_total", operation="getRow", status="2xx") == CONNECTIONS
            assert named(found, "keyfold_staged_records", database="shop", table="wide") == CONNECTIONS
            assert memories(found) == {"api-1", "api-2"}
        before = service.children()
        os.kill(before[0], signal.SIGKILL)
        wait_for_others(service, before)
        for found in scrapes(service):
            assert named(found, "keyfold_accepted_batches_total") == CONNECTIONS
            starts = [named(found, "keyfold_process_starts_total", process=name) for name in ("api-1", "api-2")]
            assert sorted(starts) == [1, 2]
            assert memories(found) == {"api-1", "api-2"}


def wait_for_others(service: Several, before: list[int]) -> None:
    """Returns once a process has taken the place of the killed one, and answers."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (now := service.children()) == before or len(now) < len(before):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while True:
        found = scrapes(service)[0]
        starts = [named(found, "keyfold_process_starts_total", process=name) for name in ("api-1", "api-2")]
        if sum(starts) == 3:
            return
        assert time.monotonic() < deadline


def test_spark_and_the_process_that_merges_are_told_of(working: Several) -> None:
    before, merged = scrapes(working)[0], frozenset({"kind": "merge", "outcome": "succeeded"}.items())
    table = working.make_table("counted")
    table.post_batch([{"id": 1, "n": 1}, {"id": 1, "n": 1}]).raise_for_status()
    assert table.merge()["state"] == "succeeded"
    for found in scrapes(working):
        assert named(found, "keyfold_spark_state", state="ready") == 1
        for name, more in (("keyfold_task_records_total", 2), ("keyfold_task_rows_total", 1)):
            assert found[name, merged] - before.get((name, merged), 0) == more
        assert memories(found) == {"api-1", "api-2", "worker"}
