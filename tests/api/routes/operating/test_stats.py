"""``T/stats`` over HTTP."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.core.table.history import Run, Snapshot, SnapshotKind, TaskKind, TaskTrigger
from app.services.shared.executor import MergeSite
from tests.api.conftest import TABLES, Create, Merge, fields_of
from tests.catalog.builders import claim_next
from tests.services.builders import run_next_compaction
from tests.services.executor import PythonExecutor
from tests.storage.images.imaged import build

TABLE = f"{TABLES}/wide"


@pytest.fixture
def table_id(create: Create, shop: TestClient) -> str:
    """The table ``wide``, that is never compacted by itself."""
    made: str = create(options={"num-sorted-run.compaction-trigger": "99"})["id"]
    return made


def records(*ids: int) -> list[dict[str, Any]]:
    return [{"id": one, "note": f"note {one}"} for one in ids]


def stage(client: TestClient, *ids: int) -> None:
    assert client.post(f"{TABLE}/batches", json={"records": records(*ids)}).status_code == 202


def stats(client: TestClient) -> dict[str, Any]:
    answer = client.get(f"{TABLE}/stats")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def figures(reported: Any) -> list[Any]:
    """All numbers and texts of an answer."""
    inside = reported.values() if isinstance(reported, dict) else reported if isinstance(reported, list) else None
    return [reported] if inside is None else [figure for each in inside for figure in figures(each)]


def test_a_new_table_has_nothing_to_divide_by(shop: TestClient, table_id: str) -> None:
    reported = stats(shop)
    assert not any(figures(reported))
    unknown = {"snapshotId", "overdue", "lastMerge", "lastCompaction", "mergesWait", "compactionFailure"}
    assert {name for name, value in reported.items() if value is None} == unknown | {
        "writeAmplification",
        "spaceAmplification",
    }


def test_what_is_staged_merged_and_kept_is_counted_and_a_compaction_costs_writes_and_saves_reads(
    shop: TestClient, table_id: str, merge: Merge, app: FastAPI
) -> None:
    for ids in ((1, 2, 3), (3, 4)):
        merge(*records(*ids))
    stage(shop, 5)
    stage(shop, 6, 7)
    shop.post(f"{TABLE}/tags", json={"tagName": "v1"})
    reported = stats(shop)
    current = shop.get(f"{TABLE}/snapshot").json()["snapshot"]["snapshot"]
    batches = shop.get(f"{TABLE}/batches?order=oldest").json()["batches"][-2:]
    assert reported["staged"] == {
        "batches": 2,
        "records": 3,
        "sizeBytes": sum(batch["sizeBytes"] for batch in batches),
        "oldestAcceptedAt": batches[0]["acceptedAt"],
    }
    assert {name: reported[name] for name in ("snapshotId", "rows", "storedRows", "files", "sizeBytes", "runs")} == {
        "snapshotId": 2,
        **{name: current[name] for name in ("rows", "storedRows", "files", "sizeBytes", "runs")},
    }
    assert (reported["storedRows"], reported["runs"], reported["mostRuns"], reported["readAmplification"]) == (
        5,
        2,
        2,
        2,
    )
    assert reported["rows"] is None
    assert reported["written"]["mergedBytes"] == reported["sizeBytes"] == reported["retainedBytes"]
    assert reported["writeAmplification"] == 1.0
    first = shop.get(f"{TABLE}/snapshots/1").json()["snapshot"]["sizeBytes"]
    assert reported["spaceAmplification"] == pytest.approx(reported["sizeBytes"] / first)
    assert (reported["snapshots"], reported["tags"], reported["merges"], reported["compactions"]) == (2, 1, 2, 0)
    last = shop.get(f"{TABLE}/merges").json()["merges"][0]
    assert reported["lastMerge"] == {
        "id": last["id"],
        "finishedAt": last["finishedAt"],
        "durationMillis": last["finishedAt"] - last["startedAt"],
        "rows": 2,
    }

    parts: Parts = app.state.parts
    before = stats(shop)
    compacted = compact(parts, table_id)
    after = stats(shop)
    assert (after["runs"], after["readAmplification"], after["spaceAmplification"]) == (1, 1, 1.0)
    assert after["written"]["compactedBytes"] == compacted.size_bytes
    assert after["writeAmplification"] == pytest.approx(1 + compacted.size_bytes / before["sizeBytes"])
    assert after["retainedBytes"] == before["retainedBytes"] + compacted.size_bytes
    assert (after["compactions"], after["lastCompaction"]["rows"]) == (1, 4)
    assert (after["disk"]["liveBytes"], after["disk"]["olderBytes"]) == (compacted.size_bytes, before["sizeBytes"])


def test_each_byte_on_disk_has_one_use(app: FastAPI, shop: TestClient, table_id: str, merge: Merge) -> None:
    """What the folder of a table holds is what is counted: data files, staging files, changelogs."""
    parts: Parts = app.state.parts
    shop.post(TABLE, json={"changes": [{"action": "setOption", "key": "changelog-producer", "value": "lookup"}]})
    for ids in ((1, 2, 3), (3, 4)):
        merge(*records(*ids))
    stage(shop, 5)
    disk = stats(shop)["disk"]
    files = [file for file in Path(parts.warehouse.path(table_id)).rglob("*") if file.is_file()]
    sizes = Counter[str]()
    for file in files:
        sizes[file.relative_to(parts.warehouse.path(table_id)).parts[0]] += file.stat().st_size
    assert min(disk[f"{use}Bytes"] for use in ("live", "staged", "history", "changelog")) > 0
    assert sizes["runs"] == disk["liveBytes"] + disk["olderBytes"]
    assert sizes["staging"] == disk["stagedBytes"] + disk["historyBytes"]
    assert sizes["changelog"] == disk["changelogBytes"]


def test_why_merges_wait_and_compactions_fail(app: FastAPI, shop: TestClient, table_id: str, merge: Merge) -> None:
    parts: Parts = app.state.parts
    changed = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"}
    changes = [{"action": "setOption", "key": key, "value": value} for key, value in changed.items()]
    assert shop.post(TABLE, json={"changes": changes}).status_code == 200
    for ids in ((1, 2, 3), (3, 4)):
        merge(*records(*ids))
    asked = shop.post(f"{TABLE}/compact").json()
    reported = stats(shop)
    assert reported["mergesWait"] == {
        "compactionId": asked["id"],
        "runs": 2,
        "stopTrigger": 2,
        "since": asked["requestedAt"],
        "until": asked["requestedAt"] + 300_000,
    }
    with parts.database.transaction() as repository:
        assert claim_next(repository, "worker", 600, TaskKind.COMPACTION) is not None
        repository.claimed_tasks.fail(asked["id"], "worker", "no room")
    reported = stats(shop)
    failed = shop.get(f"{TABLE}/merges/{asked['id']}").json()
    assert reported["mergesWait"] is None
    assert reported["compactionFailure"] == {"inARow": 1, "lastAt": failed["finishedAt"], "error": "no room"}


def compact(parts: Parts, table_id: str) -> Snapshot:
    """A compaction in the catalog alone: the biggest run's files stand for all."""
    with parts.database.transaction() as repository:
        repository.tasks.request(table_id, TaskTrigger.REQUEST, TaskKind.COMPACTION)
        claimed = claim_next(repository, "worker", 600, TaskKind.COMPACTION)
        assert claimed is not None
        assert claimed.base is not None
        run = Run("compacted", 0, claimed.base.runs[0].files)
        made = repository.claimed_tasks.commit_compaction(
            claimed.task.id, "worker", [run], base_snapshot_id=claimed.base.id
        )
        repository.claimed_tasks.finish_compaction(claimed.task.id, "worker", snapshot_id=made.id, rows=4)
    return made


REMEMBERING = [
    {},
    {"ignore-delete": "true"},
    {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
    {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    {
        "merge-engine": "partial-update",
        "fields.at.sequence-group": "note",
        "partial-update.remove-record-on-sequence-group": "at",
    },
]


@pytest.mark.parametrize("options", REMEMBERING)
def test_the_rows_of_one_run_are_those_that_a_reader_finds(
    app: FastAPI, create: Create, shop: TestClient, merge: Merge, options: dict[str, str]
) -> None:
    columns = (("id", "BIGINT NOT NULL"), ("note", "STRING"), ("at", "BIGINT"))
    fields = [{"id": place, "name": name, "type": kind} for place, (name, kind) in enumerate(columns)]
    never = {"num-sorted-run.compaction-trigger": "99"}
    create(fields=fields, options={**options, **never})
    parts: Parts = app.state.parts

    def merged(*records: dict[str, Any]) -> tuple[Any, Any, int]:
        merge(*records)
        shop.post(f"{TABLE}/tags", json={"tagName": "now", "ignoreIfExists": True})
        reported, snapshot = stats(shop), shop.get(f"{TABLE}/snapshots/LATEST").json()["snapshot"]
        assert (snapshot["rows"], snapshot["storedRows"]) == (reported["rows"], reported["storedRows"])
        assert snapshot["totalRecordCount"] == reported["storedRows"]
        keys = {"keys": [{"id": number} for number in range(9)]}
        found = shop.post(f"{TABLE}/rows:batchGet", json=keys).json()["rows"]
        return reported["rows"], reported["storedRows"], sum(one["found"] for one in found)

    posted = [{"id": number, "note": "x", "at": 1} for number in range(5)]
    deleted = [{"id": number, "at": 2, "_kind": "-D"} for number in (1, 3)]
    rows, stored, found = merged(*posted, *deleted)
    assert (rows, stored) == (found, 5)
    assert found == (5 if "ignore-delete" in options else 3)
    assert merged({"id": 1, "at": 3})[:2] == (None, 6)
    assert shop.get(f"{TABLE}/tags/now").json()["snapshot"]["rows"] == rows
    shop.post(f"{TABLE}/compact")
    assert run_next_compaction(MergeSite(parts.database, parts.warehouse, PythonExecutor(), 600), "worker")
    reported = stats(shop)
    assert (reported["runs"], reported["rows"]) == (1, 5 if "ignore-delete" in options else 4)


def test_each_partition_with_one_run_counts(create: Create, shop: TestClient, merge: Merge) -> None:
    fields = fields_of(id="BIGINT NOT NULL", day="INT NOT NULL")
    create(fields=fields, primaryKeys=["id", "day"], partitionKeys=["day"])
    reported = []
    for posted in ([{"id": 1, "day": 1}], [{"id": 1, "day": 2}, {"id": 2, "day": 2}], [{"id": 2, "day": 1}]):
        merge(*posted)
        reported.append((stats(shop)["rows"], stats(shop)["storedRows"]))
    assert reported == [(1, 1), (3, 3), (None, 4)]


def test_a_run_without_a_count_has_unknown_rows(app: FastAPI, shop: TestClient, table_id: str, merge: Merge) -> None:
    parts: Parts = app.state.parts
    merge(*records(1, 2))
    assert stats(shop)["rows"] == 2
    with parts.database.transaction() as repository:  # as an older version left it
        current = repository.snapshots.current(table_id)
        assert current is not None
        old = [replace(run, id=f"{run.id}-old", live_rows=None) for run in current.runs]
        repository.snapshots.commit(table_id, current.id, old, SnapshotKind.COMPACTION)
    assert (stats(shop)["rows"], stats(shop)["storedRows"]) == (None, 2)


def test_images_are_counted_when_they_are_made(shop: TestClient, app: FastAPI, table_id: str, merge: Merge) -> None:
    parts: Parts = app.state.parts
    parts.images.asking.builds = False
    merge(*records(1, 2))
    assert stats(shop)["images"] == {"files": 1, "made": 0, "sizeBytes": 0}
    assert shop.get(f"{TABLE}/rows?key=1").status_code == 200
    build(parts.images)
    images = stats(shop)["images"]
    assert (images["files"], images["made"]) == (1, 1)
    assert images["sizeBytes"] > 0
