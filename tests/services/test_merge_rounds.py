"""Rounds: small merges of several tables committed together, each whole or not at all, whatever comes of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Run, Table, Task, TaskState
from app.services.executor import MergeSite
from app.services.leases import Lease
from app.services.lookups import Images
from app.services.merge_choice import choose
from app.services.merge_rounds import claim_round, run_round
from app.services.merges import request_due_merges, request_merge, run_next_merge
from app.storage.runs import read_runs
from tests.services.builders import QUIET, SUM, compact, create_table, post, snapshot_of, totals
from tests.services.clocks import SetClock, clock, clocked
from tests.services.damaged import files_in, flip
from tests.services.test_altered_tables import alter
from tests.services.test_merges_at_once import merged, stage
from tests.services.test_partitions import merge as merge_partitioned
from tests.services.test_partitions import partitioned
from tests.services.test_worker import until, working

__all__ = ["clock", "clocked"]

SMALL = 1000


@pytest.fixture
def small(site: MergeSite) -> MergeSite:
    return replace(site, small_merge_records=SMALL)


def requested(site: MergeSite, *named: str) -> list[Table]:
    """Tables with a staged record each whose merges wait."""
    tables = [create_table(site.database, SUM | QUIET, name) for name in named]
    for table in tables:
        stage(site, table)
        request_merge(site.database, table.id)
    return tables


def claimed(site: MergeSite, owner: str = "round") -> list[Lease]:
    """The round that a worker would claim now."""
    with site.database.reading() as repository:
        waiting = repository.rounds.waiting()
    return claim_round(site, owner, choose(waiting, 0, site.small_merge_records).together)


def merges_of(site: MergeSite, table: Table) -> list[Task]:
    """Newest first."""
    with site.database.reading() as repository:
        return repository.tasks.page(table.id, limit=10)


def ones(site: MergeSite, images: Images, tables: Sequence[Table]) -> list[int | None]:
    return [totals(site.database, images, table, [1])[0] for table in tables]


def test_merges_of_several_tables_are_committed_in_one_step(small: MergeSite, images: Images) -> None:
    tables = requested(small, "a", "b", "c")
    before, _ = small.database.commits
    leases = claimed(small)
    assert [merges_of(small, table)[0].state for table in tables] == [TaskState.RUNNING] * 3
    assert run_round(small, leases) == leases
    assert small.database.commits[0] == before + 1
    for table in tables:
        snapshot, [merge] = snapshot_of(small.database, table), merges_of(small, table)
        assert snapshot is not None
        assert (snapshot.id, snapshot.merge_id, snapshot.rows) == (1, merge.id, 1)
        told = (merge.state, merge.progress, merge.snapshot_id, merge.batches, merge.records, merge.rows)
        assert told == (TaskState.SUCCEEDED, 1.0, 1, 1, 1, 1)
        with small.database.reading() as repository:
            assert repository.tables.written(table.id).merged == snapshot.size_bytes
            assert repository.tables.merges_since_full(table.id) == 1
    assert ones(small, images, tables) == [1, 1, 1]


def test_a_merge_that_is_cancelled_while_its_round_folds_is_not_committed(small: MergeSite, images: Images) -> None:
    tables = requested(small, "a", "b")
    leases = claimed(small)
    with small.database.transaction() as repository:
        repository.tasks.request_cancel(tables[0].id, leases[0].claimed.task.id)
    assert run_round(small, leases) == leases[1:]
    assert not run_next_merge(small, "single")
    assert merges_of(small, tables[0])[0].state is TaskState.CANCELLED
    assert ones(small, images, tables) == [None, 1]


def test_rounds_go_on_from_each_other_from_merges_and_from_compactions(small: MergeSite, images: Images) -> None:
    tables = requested(small, "a", "b")
    run_round(small, claimed(small))
    for turn in range(2, 6):
        for table in tables:
            stage(small, table)
            request_merge(small.database, table.id)
        if turn == 3:
            assert run_next_merge(small, "single")
        assert len(run_round(small, claimed(small))) == (1 if turn == 3 else 2)
        if turn == 4:
            compact(small, tables[0])
        assert ones(small, images, tables) == [turn, turn]
    assert [len(snapshot.runs) for table in tables if (snapshot := snapshot_of(small.database, table))] == [2, 5]


def test_a_compaction_that_is_committed_in_the_middle_of_a_round_stays(small: MergeSite, images: Images) -> None:
    [table] = requested(small, "a")
    run_round(small, claimed(small))
    stage(small, table)
    request_merge(small.database, table.id)
    leases = claimed(small)
    compact(small, table)
    assert run_round(small, leases) == leases
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert (snapshot.id, [run.full for run in snapshot.runs]) == (3, [True, False])
    assert ones(small, images, [table]) == [2]


def test_what_a_round_commits_is_what_its_files_say(small: MergeSite) -> None:
    table = partitioned(small, {"merge-engine": "deduplicate"})
    merge_partitioned(small, table, ("2024-05-01", "a", 1, 1), ("2024-05-02", "b", 1, 1), ("2024-05-02", "b", 2, 1))
    post(small.database, small.warehouse, {"day": "2024-05-02", "shop": "b", "id": 1, "_kind": "-D"})
    request_merge(small.database, table.id)
    run_round(small, claimed(small))
    snapshot = snapshot_of(small.database, table)
    assert snapshot is not None
    assert sorted(run.live_rows or 0 for run in snapshot.runs) == [0, 1, 2]
    folders = {run.id.partition(".")[0] for run in snapshot.runs}
    found: list[Run] = []
    for folder in folders:
        found += read_runs(small.warehouse, table.id, folder, table.schema_id, table.schema)
    assert sorted(found, key=lambda run: run.id) == sorted(snapshot.runs, key=lambda run: run.id)


def test_a_table_whose_merge_fails_holds_up_no_other_of_its_round(small: MergeSite, images: Images) -> None:
    bad, *good = requested(small, "bad", "a", "b")
    [path] = files_in(small.warehouse, bad.id, "staging")
    flip(path)
    assert len(run_round(small, claimed(small))) == 2
    assert ones(small, images, good) == [1, 1]
    assert claimed(small) == []  # it is done again by itself
    assert run_next_merge(small, "single")
    [merge] = merges_of(small, bad)
    assert merge.state is TaskState.FAILED
    assert "damaged" in (merge.error or "")


def test_a_table_that_is_altered_or_dropped_meanwhile_leaves_its_round(small: MergeSite, images: Images) -> None:
    altered, dropped, good = requested(small, "wide", "gone", "good")
    leases = claimed(small)
    alter(small, altered, (1, "n"), (2, "more"), options=SUM | QUIET | {"fields.more.aggregate-function": "sum"})
    with small.database.transaction() as repository:
        repository.tables.drop("shop", "gone")
    assert [lease.claimed.table.id for lease in run_round(small, leases)] == [good.id]
    assert ones(small, images, [good, altered]) == [1, None]
    assert run_next_merge(small, "single")
    assert ones(small, images, [altered]) == [1]
    assert dropped.id not in {lease.claimed.table.id for lease in claimed(small)}


def test_who_lost_a_lease_commits_nothing_of_it(small: MergeSite, images: Images) -> None:
    lost, kept = requested(small, "lost", "kept")
    leases = claimed(small)
    with small.database.transaction() as repository:
        repository.leases.hand_back(leases[0].claimed.task.id, "round")
    again = replace(small, small_merge_records=0)
    assert run_next_merge(again, "rival")
    assert [lease.claimed.table.id for lease in run_round(small, leases)] == [kept.id]
    assert ones(small, images, [lost, kept]) == [1, 1]


def test_a_round_whose_worker_died_comes_again_merge_by_merge(
    small: MergeSite, clocked: CatalogDatabase, clock: SetClock, images: Images
) -> None:
    small = replace(small, database=clocked, lease_seconds=30)
    tables = requested(small, "a", "b")
    assert len(claimed(small, "dead")) == 2
    stage(small, tables[0])
    assert not run_next_merge(small, "alive")
    clock.move(seconds=31)
    assert claimed(small) == []
    assert run_next_merge(small, "alive")
    assert run_next_merge(small, "alive")
    assert ones(small, images, tables) == [2, 1]


def test_no_merge_is_in_two_rounds(small: MergeSite) -> None:
    requested(small, "a", "b")
    with small.database.reading() as repository:
        seen = repository.rounds.waiting()
    assert len(claim_round(small, "first", seen)) == 2
    assert claim_round(small, "second", seen) == []


def test_what_came_after_the_claim_is_left_to_the_next_merge(small: MergeSite, images: Images) -> None:
    [table] = requested(small, "a")
    leases = claimed(small)
    stage(small, table)
    run_round(small, leases)
    assert ones(small, images, [table]) == [1]
    with small.database.reading() as repository:
        assert [batch.number for batch in repository.batches.staged(table.id)] == [2]


def test_merges_are_done_in_the_order_in_which_they_are_due(
    small: MergeSite, clocked: CatalogDatabase, clock: SetClock
) -> None:
    """By the age of the oldest batch and what each table says of it, whenever somebody looks."""
    small = replace(small, database=clocked)
    for name, seconds in (("a", 30), ("b", 1), ("c", 10), ("d", 3600)):
        stage(small, create_table(clocked, SUM | {"merge.max-staleness": f"{seconds} s"}, name))
        clock.move(seconds=5)
    clock.move(seconds=60)
    assert request_due_merges(clocked) == 3
    with clocked.reading() as repository:
        assert [one.table.name for one in repository.rounds.waiting()] == ["b", "c", "a"]


@pytest.mark.slow(reason="a worker looks for work in its own time")
def test_a_worker_merges_many_tables_in_few_commits(small: MergeSite, images: Images) -> None:
    tables = [create_table(small.database, SUM | {"merge.max-staleness": "0 s"}, f"t{number}") for number in range(40)]
    for table in tables:
        stage(small, table)
    before, _ = small.database.commits
    with working(small, poll_seconds=0.02):
        assert until(lambda: merged(small, tables))
    assert small.database.commits[0] - before < len(tables)
    assert ones(small, images, tables) == [1] * 40
