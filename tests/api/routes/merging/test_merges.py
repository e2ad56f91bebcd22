"""``T/merges``: asked for, watched, cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.kernel.tasks import Job, Progress, Result
from app.services.shared.executor import MergeSite
from tests.api.conftest import TABLES, Create
from tests.services.builders import run_next_compaction, run_next_merge
from tests.services.executor import BrokenExecutor, PythonExecutor

MERGES = f"{TABLES}/wide/merges"


def run(app: FastAPI, executor: PythonExecutor | None = None) -> None:
    """Runs the oldest pending merge."""
    parts: Parts = app.state.parts
    site = MergeSite(parts.database, parts.warehouse, executor or PythonExecutor(), 600)
    assert run_next_merge(site, "worker")


def stage(client: TestClient) -> str:
    answer = client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}, {"id": 1}]})
    batch: str = answer.json()["id"]
    return batch


def test_a_merge_is_an_operation_that_can_be_watched(app: FastAPI, wide: TestClient) -> None:
    batch = stage(wide)
    answer = wide.post(MERGES)
    assert (answer.status_code, answer.headers["retry-after"]) == (202, "1")
    asked = answer.json()
    assert answer.headers["location"] == f"{MERGES}/{asked['id']}"
    assert (asked["job"], asked["state"], asked["trigger"], asked["startedAt"]) == ("merge", "pending", "request", None)
    run(app)
    done = wide.get(answer.headers["location"]).json()
    assert (done["state"], done["snapshotId"], done["progress"], done["error"]) == ("succeeded", 1, 1.0, None)
    assert (done["batches"], done["records"], done["rows"]) == (1, 2, 1)
    assert done["requestedAt"] <= done["startedAt"] <= done["finishedAt"]
    reported = wide.get(f"{TABLES}/wide/batches/{batch}").json()
    assert (reported["state"], reported["mergeId"], reported["snapshotId"]) == ("merged", asked["id"], 1)


def test_a_merge_that_waits_already_is_answered_again(wide: TestClient) -> None:
    assert wide.post(MERGES).json() == wide.post(MERGES).json()
    assert len(wide.get(MERGES).json()["merges"]) == 1


def test_a_failed_merge_says_why(app: FastAPI, wide: TestClient) -> None:
    batch = stage(wide)
    merge = wide.post(MERGES).json()["id"]
    run(app, BrokenExecutor(RuntimeError("the disk is full")))
    reported = wide.get(f"{MERGES}/{merge}").json()
    assert reported["state"] == "failed"
    assert reported["error"].startswith("the disk is full")
    assert wide.get(f"{TABLES}/wide/batches/{batch}").json()["state"] == "staged"


def test_merges_are_listed_newest_first_a_page_at_a_time(app: FastAPI, wide: TestClient) -> None:
    asked = []
    for _ in range(3):
        asked.append(wide.post(MERGES).json()["id"])
        run(app)
    first = wide.get(MERGES, params={"maxResults": 2}).json()
    rest = wide.get(MERGES, params={"pageToken": first["nextPageToken"]}).json()
    assert [one["id"] for one in (*first["merges"], *rest["merges"])] == asked[::-1]
    assert (len(first["merges"]), rest["nextPageToken"]) == (2, None)


def test_a_pending_merge_is_cancelled_and_its_batches_wait_for_the_next_one(app: FastAPI, wide: TestClient) -> None:
    stage(wide)
    first = wide.post(MERGES).json()["id"]
    cancelled = wide.post(f"{MERGES}/{first}:cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    second = wide.post(MERGES).json()["id"]
    assert second != first
    run(app)
    assert wide.get(f"{MERGES}/{second}").json()["batches"] == 1


def test_a_merge_of_another_table_is_not_found(create: Create, wide: TestClient) -> None:
    create("other")
    merge = wide.post(MERGES).json()["id"]
    for answer in (
        wide.get(f"{TABLES}/other/merges/{merge}"),
        wide.post(f"{TABLES}/other/merges/{merge}:cancel"),
        wide.get(f"{MERGES}/nope"),
        wide.post(f"{MERGES}/nope:cancel"),
    ):
        assert (answer.status_code, answer.json()["errorCode"]) == (404, "merge_not_found")
    assert wide.post(f"{TABLES}/none/merges").json()["errorCode"] == "table_not_found"
    assert wide.get(f"{MERGES}/{merge}").json()["state"] == "pending"


class WatchedExecutor(PythonExecutor):
    """Reports what Spark does, whose fraction runs back when it plans more, and notes what a client then reads."""

    def __init__(self, watch: Callable[[dict[str, int]], float]) -> None:
        super().__init__()
        self.watch = watch
        self.read: list[float] = []

    def _work(self, on_progress: Progress, first: int) -> None:
        for number, fraction in enumerate((0.4, 1.0, 0.2, 1.0), first):
            on_progress(fraction, {"tasksDone": number})
            self.read.append(self.watch({"tasksDone": number}))

    def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self._work(report, 1)
        return super().merge(tag, job, lambda *_: None)

    def compact(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self._work(report, 1)
        return super().compact(tag, job, lambda *_: None)

    def write_changes(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self._work(report, 5)
        return super().write_changes(tag, job, lambda *_: None)


def watched(client: TestClient, job: str) -> WatchedExecutor:
    """An executor beside which ``client`` polls the newest ``job`` until it tells what was reported."""

    def watch(detail: dict[str, int]) -> float:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            newest = next(merge for merge in client.get(MERGES).json()["merges"] if merge["job"] == job)
            if newest["progressDetail"] == detail:
                progress: float = newest["progress"]
                return progress
            time.sleep(0.02)
        raise AssertionError(f"nobody was told of {detail}")

    return WatchedExecutor(watch)


@pytest.mark.parametrize(
    ("job", "options", "expected"),
    [
        ("merge", {}, [0.4, 0.99, 0.99, 0.99]),
        ("merge", {"changelog-producer": "lookup"}, [0.2, 0.5, 0.5, 0.5, 0.7, 0.99, 0.99, 0.99]),
        ("compaction", {}, [0.4, 0.99, 0.99, 0.99]),
        ("compaction", {"changelog-producer": "full-compaction"}, [0.4, 0.99, 0.99, 0.99]),
    ],
)
def test_progress_never_goes_back_and_is_whole_only_after_the_commit(
    app: FastAPI, create: Create, shop: TestClient, job: str, options: dict[str, str], expected: list[float]
) -> None:
    create(options=options)
    parts: Parts = app.state.parts
    stage(shop)
    shop.post(MERGES)
    executor = watched(shop, job)
    site = MergeSite(parts.database, parts.warehouse, executor if job == "merge" else PythonExecutor(), 0.2)
    assert run_next_merge(site, "worker")
    if job == "compaction":
        shop.post(f"{TABLES}/wide/compact")
        assert run_next_compaction(MergeSite(parts.database, parts.warehouse, executor, 0.2), "worker")
    done = next(merge for merge in shop.get(MERGES).json()["merges"] if merge["job"] == job)
    assert executor.read == pytest.approx(expected)
    assert (done["state"], done["progress"]) == ("succeeded", 1.0)
    assert done["progressDetail"] == {"tasksDone": len(expected)}
