"""Rollbacks beside what else happens to a table: staged batches, merges under way, other schemas, expiry."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.core.errors import ErrorCode, NotFound
from app.core.table.history import Table, TaskState
from app.services.rows.lookups import Images, get_row
from app.services.shared.executor import MergeSite
from app.services.snapshots.snapshots import roll_back
from app.services.snapshots.tags import create_tag
from app.services.upkeep.sweeps import expire_snapshots, sweep
from tests.services import builders
from tests.services.builders import (
    SUM,
    back_to,
    batches_of,
    create_table,
    post,
    schema,
    totals,
)
from tests.services.executor import InterruptedExecutor

PATIENT = SUM | {"num-sorted-run.compaction-trigger": "50"}


def merge(site: MergeSite, table: Table, *numbers: int) -> None:
    """A merge for each of ``numbers``, which are added to the row 1."""
    for number in numbers:
        builders.merge(site, table, {"id": 1, "n": number})


def at(site: MergeSite, images: Images, version: str) -> object:
    """The row 1 as it is at a version."""
    with site.database.reading() as repository:
        return get_row(repository, images, repository.tables.get("shop", "wide"), ["1"], version=version).row


def test_staged_batches_stay_and_are_folded_on_top(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, PATIENT)
    merge(site, table, 1, 10)
    post(site.database, site.warehouse, {"id": 1, "n": 100})
    undone = back_to(site, table, 1)
    assert (undone.made.snapshot.id, undone.undone_batches) == (3, 1)
    assert totals(site.database, images, table, [1]) == [1]
    assert totals(site.database, images, table, [1], latest=True) == [101]
    builders.merge(site, table)
    assert totals(site.database, images, table, [1]) == [101]
    back_to(site, table, 2)
    assert totals(site.database, images, table, [1]) == [11]


def test_a_merge_under_way_goes_on_top_of_the_rollback(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, PATIENT)
    merge(site, table, 1, 10)
    interrupted = replace(site, executor=InterruptedExecutor(lambda: back_to(site, table, 1)))
    assert builders.merge(interrupted, table, {"id": 1, "n": 100}).state is TaskState.SUCCEEDED
    with site.database.reading() as repository:
        assert [snapshot.kind for snapshot in repository.snapshots.page(table.id, limit=2)] == ["merge", "rollback"]
    assert totals(site.database, images, table, [1]) == [101]


def test_a_tag_outlives_the_options_of_snapshots_and_the_sweep(site: MergeSite, images: Images) -> None:
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = create_table(site.database, PATIENT | few | {"num-sorted-run.compaction-trigger": "3"})
    merge(site, table, 1, 10)
    with site.database.transaction() as repository:
        create_tag(repository, table, "early", 1)
        create_tag(repository, table, "short", 2, "1 h")
    merge(site, table, 100, 1000)
    later = datetime.now(UTC) + timedelta(hours=2)
    expire_snapshots(site.database, site.warehouse, later)
    sweep(site.database, site.warehouse, timedelta(0))
    assert at(site, images, "early") == {"id": 1, "n": 1}
    with pytest.raises(NotFound) as gone:
        at(site, images, "short")
    assert gone.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
    with site.database.transaction() as repository:
        roll_back(repository, table, tag="early")
    assert totals(site.database, images, table, [1]) == [1]


def test_the_option_says_how_long_a_tag_is_kept_that_does_not_say_so(site: MergeSite) -> None:
    table = create_table(site.database, PATIENT | {"tag.default-time-retained": "1 h"})
    merge(site, table, 1)
    with site.database.transaction() as repository:
        create_tag(repository, table, "default")
        create_tag(repository, table, "longer", None, "2 d")
    expire_snapshots(site.database, site.warehouse, datetime.now(UTC) + timedelta(hours=1, minutes=1))
    with site.database.reading() as repository:
        assert [tag.name for tag in repository.tags.page(table.id, limit=9)] == ["longer"]


def test_times_beyond_the_calendar_keep_everything(site: MergeSite) -> None:
    ages = {"snapshot.time-retained": "9999999 d", "tag.default-time-retained": "9999999 d"}
    table = create_table(site.database, PATIENT | ages | {"snapshot.num-retained.min": "1"})
    merge(site, table, 1, 10)
    with site.database.transaction() as repository:
        create_tag(repository, table, "v1")
    expire_snapshots(site.database, site.warehouse)
    with site.database.reading() as repository:
        assert [tag.name for tag in repository.tags.page(table.id, limit=9)] == ["v1"]
        assert [snapshot.id for snapshot in repository.snapshots.page(table.id, limit=9)] == [2, 1]


def test_a_rollback_keeps_the_schema_and_the_old_snapshot_keeps_its_own(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, PATIENT)
    merge(site, table, 1)
    wider = PATIENT | {"fields.m.aggregate-function": "sum"}
    with site.database.transaction() as repository:
        added = schema(("id", "BIGINT"), ("n", "BIGINT"), ("m", "BIGINT"), options=wider)
        altered = repository.tables.alter(table.id, 0, added)
    builders.merge(site, table, {"id": 1, "n": 10, "m": 5})
    assert back_to(site, altered, 1).made.snapshot.schema_id == 1
    assert at(site, images, "1") == {"id": 1, "n": 1}
    assert at(site, images, "2") == {"id": 1, "n": 11, "m": 5}
    assert at(site, images, "3") == {"id": 1, "n": 1, "m": None}
    builders.merge(site, table, {"id": 1, "m": 7})
    assert at(site, images, "LATEST") == {"id": 1, "n": 1, "m": 7}


@pytest.mark.slow(reason="threads race for a while")
def test_rollbacks_beside_merges_compactions_and_readers_never_show_half_of_anything(
    site: MergeSite, images: Images
) -> None:
    table = create_table(site.database, SUM | {"num-sorted-run.compaction-trigger": "3"})
    target: dict[int, int] = {}
    merged_all, done = threading.Event(), threading.Event()

    def merge_all() -> None:
        for number in range(12):
            builders.merge(site, table, *({"id": one, "n": 2**number} for one in (1, 2)))
            builders.run_next_compaction(site, "compactor")
        merged_all.set()

    def roll_back_often() -> None:
        chooser = random.Random(7)
        while len(target) < 8 and not merged_all.wait(0.05):
            with site.database.reading() as repository:
                known = [snapshot.id for snapshot in repository.snapshots.page(table.id, limit=99)]
            if known:
                number = chooser.choice(known)
                target[back_to(site, table, number).made.snapshot.id] = number

    def read() -> int:
        reads = 0
        while not done.is_set():
            one, two = totals(site.database, images, table, [1, 2])
            assert one == two
            reads += 1
        return reads

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        writers = [threads.submit(merge_all), threads.submit(roll_back_often)]
        try:
            assert [writer.result(120) for writer in writers] == [None, None]
        finally:
            done.set()
        assert all(reader.result(60) for reader in readers)
    with site.database.reading() as repository:
        history = list(reversed(repository.snapshots.page(table.id, limit=99)))
    merged = [batch.snapshot_id for batch in batches_of(site.database, table)]
    assert target
    assert [snapshot.id for snapshot in history] == list(range(1, len(history) + 1))
    shown = {0: 0}
    for snapshot in history:
        expected = shown[target.get(snapshot.id, snapshot.id - 1)]
        expected += sum(2**number for number, landed in enumerate(merged) if landed == snapshot.id)
        shown[snapshot.id] = expected
        assert at(site, images, str(snapshot.id)) == {"id": 1, "n": expected}, snapshot.kind
