"""All that the service does by itself, in a bucket of a real S3 server over HTTP."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Table
from app.core.table.upkeep.damage import DamagedFile, DamageReason
from app.files.layout import Warehouse
from app.files.named_files import check_file, file_of_batch
from app.kernel.tasks import Job, Progress, Result
from app.services.batches.batches import Upload, accept_batch
from app.services.bodies.formats import ARROW, JSON
from app.services.operating.readiness import take_warehouse, warehouse_fault
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.services.upkeep.backups import back_up, restore
from app.services.upkeep.scrubs import verify
from app.services.upkeep.sweeps import sweep
from app.storage.backup_folder import BackupFolder
from tests.object_store import Fault, FaultyLine, flip, new_bucket, objects_in, put, uri_of
from tests.services import builders
from tests.services.builders import (
    QUIET,
    SUM,
    batches_of,
    committed,
    compact,
    create_table,
    post,
    snapshot_of,
    totals,
)
from tests.services.executor import PythonExecutor

pytestmark = pytest.mark.slow(reason="starts an object store, and waits for what does not answer")
NO_GRACE = timedelta(seconds=-10)
KEYS = [1, 2, 3]


@pytest.fixture
def table(site: MergeSite) -> Table:
    take_warehouse(site.database, site.warehouse)
    return create_table(site.database, SUM | QUIET)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[CatalogDatabase]:
    database = CatalogDatabase(f"sqlite:///{tmp_path / 'new' / 'catalog.sqlite'}")
    yield database
    database.close()


def merge(site: MergeSite, table: Table, *keys: int) -> None:
    for key in keys:
        post(site.database, site.warehouse, {"id": key, "n": 1})
    task = builders.merge(site, table)
    assert task.error is None, task.error


def test_what_is_posted_merged_and_compacted_is_read(site: MergeSite, table: Table, images: Images) -> None:
    merge(site, table, 1, 2)
    merge(site, table, 2, 3)
    post(site.database, site.warehouse, {"id": 3, "n": 5})
    assert totals(site.database, images, table, KEYS) == [1, 2, 1]
    assert totals(site.database, images, table, KEYS, latest=True) == [1, 2, 6]
    compact(site, table)
    assert len(snapshot_of(site.database, table).runs) == 1
    assert totals(site.database, images, table, KEYS, latest=True) == [1, 2, 6]


def test_images_are_made_of_objects(site: MergeSite, table: Table, images: Images) -> None:
    merge(site, table, *KEYS)
    assert totals(site.database, images, table, KEYS) == [1, 1, 1]
    assert images.asking.settled(60)
    made, size = images.on_disk()
    assert made > 0
    assert size > 0
    assert totals(site.database, images, table, KEYS) == [1, 1, 1]


def test_a_small_batch_is_one_request_and_nothing_stands_for_folders(
    site: MergeSite, table: Table, line: FaultyLine
) -> None:
    line.requests.clear()
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    asked = [request.split()[0] for request in line.requests]
    assert asked == ["PUT", "HEAD"]  # the file, and whether a sweep has left it
    assert objects_in(site.warehouse) == {"_keyfold", f"{table.id}/staging/{batch.file}"}


def test_what_nobody_names_is_swept_and_the_rest_stays(site: MergeSite, table: Table, images: Images) -> None:
    merge(site, table, 1, 2)
    merge(site, table, 2, 3)
    compact(site, table)
    batch = post(site.database, site.warehouse, {"id": 3, "n": 5})
    left = {f"{table.id}/staging/left.parquet", f"{table.id}/runs/left/part-0.parquet"}
    for one in left:
        put(site.warehouse, one, b"left by who was killed")
    sweep(site.database, site.warehouse)  # they are young
    assert left <= objects_in(site.warehouse)
    assert sweep(site.database, site.warehouse, NO_GRACE) >= len(left) + 4  # and the merged batches
    there = objects_in(site.warehouse)
    assert not left & there
    assert {one for one in there if "/staging/" in one} == {f"{table.id}/staging/{batch.file}"}
    assert totals(site.database, images, table, KEYS, latest=True) == [1, 2, 6]
    assert sweep(site.database, site.warehouse, NO_GRACE) == 0


def test_a_dropped_table_leaves_no_object(site: MergeSite, table: Table) -> None:
    merge(site, table, 1)
    drop_table(site.database, site.warehouse, ("shop", "wide"))
    assert not [one for one in objects_in(site.warehouse) if one.startswith(table.id)]
    put(site.warehouse, f"{table.id}/staging/late.parquet", b"of who was slow")
    sweep(site.database, site.warehouse, NO_GRACE)
    assert not [one for one in objects_in(site.warehouse) if one.startswith(table.id)]


def test_every_changed_gone_or_shorter_object_is_named(site: MergeSite, table: Table, images: Images) -> None:
    merge(site, table, 1)
    merge(site, table, 2)
    batch = post(site.database, site.warehouse, {"id": 3, "n": 5})
    assert totals(site.database, images, table, KEYS, latest=True) == [1, 1, 5]
    first, second = sorted(one for one in objects_in(site.warehouse) if "/runs/" in one)
    staged = f"{table.id}/staging/{batch.file}"
    flip(site.warehouse, first, 30)
    site.warehouse.filesystem.delete_file(site.warehouse.path(second))
    put(site.warehouse, staged, b"short")
    found = {one.file.path: one.damage.reason for one in verify(site.database, site.warehouse) if one.damage}
    assert found == {first: DamageReason.WRONG_CONTENT, second: DamageReason.MISSING, staged: DamageReason.WRONG_SIZE}


def test_an_object_that_changes_after_it_was_found_well_is_noticed(
    site: MergeSite, table: Table, images: Images
) -> None:
    merge(site, table, 1)
    assert totals(site.database, images, table, [1]) == [1]
    run = next(one for one in objects_in(site.warehouse) if "/runs/" in one)
    flip(site.warehouse, run, 30)
    with pytest.raises(DamagedFile, match=run):
        totals(site.database, images, table, [1])


def test_a_bucket_that_is_gone_damages_no_file(site: MergeSite, table: Table, images: Images) -> None:
    merge(site, table, 1)
    root = site.warehouse.path()
    site.warehouse.filesystem.delete_dir_contents(root)
    with pytest.raises(Unavailable, match="the warehouse is missing"):
        totals(site.database, images, table, [1])


def test_a_backup_of_a_bucket_is_put_back_into_another_one(
    site: MergeSite, table: Table, images: Images, empty: CatalogDatabase, tmp_path: Path, store: str
) -> None:
    merge(site, table, 1, 2)
    post(site.database, site.warehouse, {"id": 3, "n": 5}, key="staged")
    before = totals(site.database, images, table, KEYS, latest=True)
    target = BackupFolder(tmp_path / "backups")
    done = back_up(site.database, site.warehouse, target, "1.2.3", lambda _: None)
    assert not done.damaged
    again = Warehouse(uri_of(new_bucket(store), store, prefix=""))
    restore(target, None, empty, again, lambda _: None)
    others = Images(tmp_path / "other images", again)
    assert totals(empty, others, table, KEYS, latest=True) == before == [1, 1, 5]
    assert not [one for one in verify(empty, again) if one.damage]
    others.close()


def test_a_store_that_fails_stores_nothing_and_what_is_sent_again_counts_once(
    site: MergeSite, table: Table, line: FaultyLine, images: Images
) -> None:
    for fault in Fault:
        if fault is Fault.CUT:
            continue  # of answers that have a body
        line.fail(fault, "PUT")
        with pytest.raises(Unavailable, match="the warehouse cannot be written"):
            post(site.database, site.warehouse, {"id": 1, "n": 1}, key=f"sent again {fault}")
        line.heal()
        post(site.database, site.warehouse, {"id": 1, "n": 1}, key=f"sent again {fault}")
    assert totals(site.database, images, table, [1], latest=True) == [len(Fault) - 1]


def large_upload() -> Upload:
    """What becomes a file of more than the 10 MB that one PUT takes: bytes that nothing compresses."""
    draw, sink = np.random.default_rng(1), io.BytesIO()
    rows = pa.table({"id": range(100), "v": [draw.bytes(2**17) for _ in range(100)]})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return Upload(sink.getvalue(), ARROW, "large")


def test_a_large_batch_comes_in_parts_and_is_there_as_a_whole_or_not_at_all(site: MergeSite, line: FaultyLine) -> None:
    take_warehouse(site.database, site.warehouse)
    create_table(site.database, QUIET, columns=(("id", "BIGINT"), ("v", "BYTES")))
    upload, bounds = large_upload(), Bounds(1000)
    for fault, method in ((Fault.SLOW_DOWN, "PUT"), (Fault.LOST_ANSWER, "PUT"), (Fault.SLOW_DOWN, "POST")):
        line.fail(fault, method)
        with pytest.raises(Unavailable, match="the warehouse cannot be written"):
            accept_batch(site.database, site.warehouse, "shop", "wide", upload, bounds)
        line.heal()
        assert objects_in(site.warehouse) == {"_keyfold"}
    line.requests.clear()
    batch = accept_batch(site.database, site.warehouse, "shop", "wide", upload, bounds).batch
    assert len([request for request in line.requests if "partNumber" in request]) >= 2
    check_file(site.warehouse, file_of_batch(batch))


def test_a_put_whose_answer_is_lost_is_repeated_and_counts_once(
    site: MergeSite, table: Table, line: FaultyLine, images: Images
) -> None:
    line.requests.clear()
    line.fail(Fault.LOST_ANSWER, "PUT", times=1)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    assert [request.split()[0] for request in line.requests] == ["PUT", "PUT", "HEAD"]
    assert totals(site.database, images, table, [1], latest=True) == [1]


def test_a_store_that_does_not_say_whether_the_file_is_there_takes_no_batch(
    site: MergeSite, table: Table, line: FaultyLine, images: Images
) -> None:
    line.fail(Fault.SLOW_DOWN, "HEAD")
    with pytest.raises(Unavailable, match="has too much to do; nothing was stored"):
        post(site.database, site.warehouse, {"id": 1, "n": 1})
    line.heal()
    assert totals(site.database, images, table, [1], latest=True) == [None]


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.SLOW_DOWN, Fault.ERROR, Fault.SILENCE])
def test_an_object_that_cannot_be_read_now_is_not_damaged(
    site: MergeSite, table: Table, line: FaultyLine, images: Images, fault: Fault
) -> None:
    merge(site, table, 1)
    line.fail(fault, "GET")
    with pytest.raises(Unavailable, match=r"the object store .*; retry later"):
        totals(site.database, images, table, [1])
    line.fail(fault, "GET", times=1)
    assert totals(site.database, images, table, [1]) == [1]


def test_a_merge_in_whose_middle_the_store_fails_is_made_again_and_counts_once(
    site: MergeSite, table: Table, line: FaultyLine, images: Images
) -> None:
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    line.fail(Fault.SLOW_DOWN, "GET")
    builders.merge(site, table)
    assert not committed(site.database, table)
    assert [batch.state.value for batch in batches_of(site.database, table)] == ["staged"]
    line.heal()
    builders.merge(site, table)
    assert totals(site.database, images, table, [1]) == [1]


class FailingExecutor(PythonExecutor):
    """Its store fails once the first job has written its files."""

    def __init__(self, line: FaultyLine) -> None:
        super().__init__()
        self._line: FaultyLine | None = line

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        found = super().run(tag, job, report)
        if self._line is not None:
            self._line.fail(Fault.SLOW_DOWN)
        self._line = None
        return found


def test_a_merge_whose_files_cannot_be_read_back_says_why_in_words_and_is_made_again(
    site: MergeSite, table: Table, line: FaultyLine, images: Images, tmp_path: Path
) -> None:
    failing = replace(site, executor=FailingExecutor(line))
    error = builders.merge(failing, table, {"id": 1, "n": 1}).error
    assert error.startswith("the object store has too much to do (nothing was changed")
    line.heal()
    builders.merge(failing, table)
    assert totals(site.database, images, table, [1]) == [1]
    assert sweep(site.database, site.warehouse, NO_GRACE) == 2  # the staged file, and what the failed merge has written


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (Fault.SLOW_DOWN, "the object store has too much to do"),
        (Fault.ERROR, "the object store reports an internal error"),
        (Fault.REFUSAL, "the object store refuses the service"),
        (Fault.SILENCE, "the object store does not answer"),
    ],
)
def test_readiness_says_what_the_store_does_and_nothing_else(
    site: MergeSite, table: Table, line: FaultyLine, fault: Fault, reported: str
) -> None:
    line.fail(fault)
    assert warehouse_fault(site.database, site.warehouse) == reported
    line.heal()
    assert warehouse_fault(site.database, site.warehouse) is None


def test_a_store_that_is_gone_is_reported_by_readiness_and_to_who_posts(
    site: MergeSite, table: Table, line: FaultyLine
) -> None:
    line.close()
    assert warehouse_fault(site.database, site.warehouse) == "the object store does not answer"
    with pytest.raises(Unavailable, match="the object store does not answer; nothing was stored"):
        post(site.database, site.warehouse, {"id": 1, "n": 1})


def test_a_bucket_that_could_not_be_asked_at_the_start_is_taken_later(site: MergeSite, line: FaultyLine) -> None:
    line.fail(Fault.SLOW_DOWN)
    take_warehouse(site.database, site.warehouse)
    line.heal()
    assert warehouse_fault(site.database, site.warehouse) is None
    assert "_keyfold" in objects_in(site.warehouse)


def test_a_bucket_without_the_tables_files_is_not_taken(site: MergeSite, table: Table, store: str) -> None:
    merge(site, table, 1)
    another = Warehouse(uri_of(new_bucket(store), store))
    assert warehouse_fault(site.database, another) == "it is not there"
    assert not objects_in(another)


def test_a_batch_with_faults_leaves_no_object(site: MergeSite, table: Table) -> None:
    good, bad = {"id": 1, "n": 1}, {"id": 2, "n": "much"}
    body = json.dumps({"records": [good, bad]}).encode()
    with pytest.raises(Exception, match="fault"):
        accept_batch(site.database, site.warehouse, "shop", "wide", Upload(body, JSON, None), Bounds(1000))
    assert objects_in(site.warehouse) == {"_keyfold"}
