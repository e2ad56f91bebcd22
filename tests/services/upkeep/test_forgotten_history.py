"""What is over is forgotten after a while, so that the catalog does not grow for ever; counts stay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.table.history import Batch, BatchState, Table, TaskKind
from app.services.batches.batches import withdraw_batch
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import expire_snapshots, forget_history
from tests.services.builders import NO_HISTORY, batches_of, create_table, merge, post, tasks_of
from tests.services.clocks import SetClock, clock, database

__all__ = ["clock", "database"]

DAYS = timedelta(days=1)
OPTIONS = NO_HISTORY | {"catalog.history-retained": "2 d", "num-sorted-run.compaction-trigger": "100"}


def merged(site: MergeSite, table: Table, key: str | None = None) -> Batch:
    batch = post(site.database, site.warehouse, {"id": 1}, key=key)
    merge(site, table)
    return batch


def test_what_is_over_is_forgotten_and_what_waits_is_not(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, OPTIONS)
    merged(site, table)
    merged(site, table)
    withdrawn = post(site.database, site.warehouse, {"id": 1})
    withdraw_batch(site.database, site.warehouse, ("shop", "wide"), withdrawn.id)
    waiting = post(site.database, site.warehouse, {"id": 1})
    clock.move(days=1)
    expire_snapshots(site.database, site.warehouse)
    assert forget_history(site.database, 7 * DAYS) == 0
    clock.move(days=2)
    assert forget_history(site.database, 7 * DAYS) == 4, "three batches and the older merge"
    assert [batch.id for batch in batches_of(site.database, table)] == [waiting.id]
    assert len(tasks_of(site.database, table)) == 1, "the last merge stays: stats tell of it"
    with site.database.reading() as repository:
        count, last = repository.stats.succeeded(table.id, TaskKind.MERGE)
        assert (count, last is not None) == (2, True)
        [left] = repository.batches.staged(table.id)
    assert (left.number, left.state) == (4, BatchState.STAGED)
    following = merged(site, table)
    assert following.number == 5


def test_a_key_is_known_for_as_long_as_is_promised(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, OPTIONS)
    first = merged(site, table, "key")
    clock.move(days=6)
    expire_snapshots(site.database, site.warehouse)
    forget_history(site.database, 7 * DAYS)
    assert post(site.database, site.warehouse, {"id": 1}, key="key").id == first.id
    clock.move(days=2)
    forget_history(site.database, 7 * DAYS)
    assert batches_of(site.database, table) == []
    assert post(site.database, site.warehouse, {"id": 1}, key="key").id != first.id


def test_a_merge_is_listed_while_a_batch_names_it(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, OPTIONS)
    merged(site, table, "key")
    clock.move(seconds=1)
    merged(site, table)
    clock.move(days=3)
    expire_snapshots(site.database, site.warehouse)
    assert forget_history(site.database, 7 * DAYS) == 1, "the batch without a key"
    assert len(tasks_of(site.database, table)) == 2


@pytest.mark.slow(reason="keeps thousands of records")
def test_thousands_are_forgotten_some_at_a_time(site: MergeSite, clock: SetClock) -> None:
    table = create_table(site.database, OPTIONS)
    for _ in range(30):
        merged(site, table)
    clock.move(days=3)
    expire_snapshots(site.database, site.warehouse)
    with site.database.transaction() as repository:
        assert repository.batches.forget(table.id, clock(), clock(), 20) == 20
    assert forget_history(site.database, DAYS) == 10 + 29
    assert batches_of(site.database, table) == []
