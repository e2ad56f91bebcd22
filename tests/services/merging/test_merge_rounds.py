"""Rounds: small merges of several tables committed together, each whole or not at all, whatever comes of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import WaitingMerge
from app.core.table.history import Table, TaskState
from app.services.merging.leases import Lease
from app.services.merging.merge_choice import ROUND_BYTES, ROUND_MERGES, ROUND_RECORDS, SMALL_RECORDS, choose
from app.services.merging.merge_rounds import claim_round, run_round
from app.services.merging.merges import request_due_merges, request_merge
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests.services.builders import (
    QUIET,
    SUM,
    back_to,
    compact,
    create_table,
    post,
    run_next_merge,
    schema,
    snapshot_of,
    tasks_of,
    totals,
)
from tests.services.clocks import SetClock, clock, clocked
from tests.services.damaged import files_in, flip
from tests.services.merging.test_merges_at_once import merged, stage
from tests.services.merging.test_worker import until, working
from tests.services.tables.test_altered_tables import alter
from tests.services.tables.test_partitions import merge as merge_partitioned
from tests.services.tables.test_partitions import partitioned
from tests.written import read_run

__all__ = ["clock", "clocked"]


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
    return claim_round(site, owner, choose(waiting, 0).together)


def ones(site: MergeSite, images: Images, tables: Sequence[Table]) -> list[int | None]:
    return [totals(site.database, images, table, [1])[0] for table in tables]


def test_merges_of_several_tables_are_committed_in_one_step(site: MergeSite, images: Images) -> None:
    tables = requested(site, "a", "b", "c")
    before, _ = site.database.commits
    leases = claimed(site)
    assert [tasks_of(site.database, table)[0].state for table in tables] == [TaskState.RUNNING] * 3
    assert run_round(site, leases) == leases
    assert site.database.commits[0] == before + 1
    for table in tables:
        snapshot, [merge] = snapshot_of(site.database, table), tasks_of(site.database, table)
        assert (snapshot.id, snapshot.merge_id, snapshot.rows) == (1, merge.id, 1)
        reported = (merge.state, merge.progress, merge.snapshot_id, merge.batches, merge.records, merge.rows)
        assert reported == (TaskState.SUCCEEDED, 1.0, 1, 1, 1, 1)
        with site.database.reading() as repository:
            assert repository.tables.written(table.id).merged == snapshot.size_bytes
            assert repository.tables.merges_since_full(table.id) == 1
    assert ones(site, images, tables) == [1, 1, 1]


def test_a_merge_that_is_cancelled_while_its_round_folds_is_not_committed(site: MergeSite, images: Images) -> None:
    tables = requested(site, "a", "b")
    leases = claimed(site)
    with site.database.transaction() as repository:
        repository.tasks.request_cancel(tables[0].id, leases[0].claimed.task.id)
    assert run_round(site, leases) == leases[1:]
    assert not run_next_merge(site, "single")
    assert tasks_of(site.database, tables[0])[0].state is TaskState.CANCELLED
    assert ones(site, images, tables) == [None, 1]


def test_rounds_go_on_from_each_other_from_merges_and_from_compactions(site: MergeSite, images: Images) -> None:
    tables = requested(site, "a", "b")
    run_round(site, claimed(site))
    for turn in range(2, 6):
        for table in tables:
            stage(site, table)
            request_merge(site.database, table.id)
        if turn == 3:
            assert run_next_merge(site, "single")
        assert len(run_round(site, claimed(site))) == (1 if turn == 3 else 2)
        if turn == 4:
            compact(site, tables[0])
        assert ones(site, images, tables) == [turn, turn]
    assert [len(snapshot.runs) for table in tables if (snapshot := snapshot_of(site.database, table))] == [2, 5]


def test_a_compaction_that_is_committed_in_the_middle_of_a_round_stays(site: MergeSite, images: Images) -> None:
    [table] = requested(site, "a")
    run_round(site, claimed(site))
    stage(site, table)
    request_merge(site.database, table.id)
    leases = claimed(site)
    compact(site, table)
    assert run_round(site, leases) == leases
    snapshot = snapshot_of(site.database, table)
    assert (snapshot.id, [run.full for run in snapshot.runs]) == (3, [True, False])
    assert ones(site, images, [table]) == [2]


def test_a_merge_below_which_rows_were_rolled_back_leaves_its_round(site: MergeSite, images: Images) -> None:
    """Whether its totals fit was proven on the rows from before."""
    [table] = requested(site, "a")
    run_round(site, claimed(site))
    for _ in range(2):
        stage(site, table)
        request_merge(site.database, table.id)
        leases = claimed(site)
        if snapshot_of(site.database, table).id == 1:
            assert run_round(site, leases) == leases
    back_to(site, table, 1)
    assert run_round(site, leases) == []
    assert run_next_merge(site, "single")
    assert ones(site, images, [table]) == [2]


def test_what_a_round_commits_is_what_its_files_say(site: MergeSite) -> None:
    table = partitioned(site, {"merge-engine": "deduplicate"})
    merge_partitioned(site, table, ("2024-05-01", "a", 1, 1), ("2024-05-02", "b", 1, 1), ("2024-05-02", "b", 2, 1))
    post(site.database, site.warehouse, {"day": "2024-05-02", "shop": "b", "id": 1, "_kind": "-D"})
    request_merge(site.database, table.id)
    run_round(site, claimed(site))
    snapshot = snapshot_of(site.database, table)
    assert sorted(run.live_rows or 0 for run in snapshot.runs) == [0, 1, 2]
    for run in snapshot.runs:
        found = read_run(site.warehouse, table.id, run.id, table.schema_id)
        assert (found.files, found.live_rows) == (run.files, run.live_rows)


def test_a_table_whose_merge_fails_holds_up_no_other_of_its_round(site: MergeSite, images: Images) -> None:
    bad, *good = requested(site, "bad", "a", "b")
    [path] = files_in(site.warehouse, bad.id, "staging")
    flip(path)
    assert len(run_round(site, claimed(site))) == 2
    assert ones(site, images, good) == [1, 1]
    assert claimed(site) == []  # it is done again by itself
    assert run_next_merge(site, "single")
    [merge] = tasks_of(site.database, bad)
    assert merge.state is TaskState.FAILED
    assert "damaged" in (merge.error or "")


def test_a_table_that_is_altered_or_dropped_meanwhile_leaves_its_round(site: MergeSite, images: Images) -> None:
    altered, dropped, good = requested(site, "wide", "gone", "good")
    leases = claimed(site)
    alter(site, altered, (1, "n"), (2, "more"), options=SUM | QUIET | {"fields.more.aggregate-function": "sum"})
    with site.database.transaction() as repository:
        repository.tables.drop("shop", "gone")
    assert [lease.claimed.table.id for lease in run_round(site, leases)] == [good.id]
    assert ones(site, images, [good, altered]) == [1, None]
    assert run_next_merge(site, "single")
    assert ones(site, images, [altered]) == [1]
    assert dropped.id not in {lease.claimed.table.id for lease in claimed(site)}


def test_who_lost_a_lease_commits_nothing_of_it(site: MergeSite, images: Images) -> None:
    lost, kept = requested(site, "lost", "kept")
    leases = claimed(site)
    with site.database.transaction() as repository:
        repository.claimed_tasks.hand_back(leases[0].claimed.task.id, "round")
    assert run_next_merge(site, "rival")
    assert [lease.claimed.table.id for lease in run_round(site, leases)] == [kept.id]
    assert ones(site, images, [lost, kept]) == [1, 1]


def test_a_round_whose_worker_died_comes_again_merge_by_merge(
    site: MergeSite, clocked: CatalogDatabase, clock: SetClock, images: Images
) -> None:
    site = replace(site, database=clocked, lease_seconds=30)
    tables = requested(site, "a", "b")
    assert len(claimed(site, "dead")) == 2
    stage(site, tables[0])
    assert not run_next_merge(site, "alive")
    clock.move(seconds=31)
    assert claimed(site) == []
    assert run_next_merge(site, "alive")
    assert run_next_merge(site, "alive")
    assert ones(site, images, tables) == [2, 1]


def test_no_merge_is_in_two_rounds(site: MergeSite) -> None:
    requested(site, "a", "b")
    with site.database.reading() as repository:
        seen = repository.rounds.waiting()
    assert len(claim_round(site, "first", seen)) == 2
    assert claim_round(site, "second", seen) == []


def test_what_came_after_the_claim_is_left_to_the_next_merge(site: MergeSite, images: Images) -> None:
    [table] = requested(site, "a")
    leases = claimed(site)
    stage(site, table)
    run_round(site, leases)
    assert ones(site, images, [table]) == [1]
    with site.database.reading() as repository:
        assert [batch.number for batch in repository.batches.staged(table.id)] == [2]


def test_merges_are_done_in_the_order_in_which_they_are_due(
    site: MergeSite, clocked: CatalogDatabase, clock: SetClock
) -> None:
    """By the age of the oldest batch and what each table says of it, whenever somebody looks."""
    site = replace(site, database=clocked)
    for name, seconds in (("a", 30), ("b", 1), ("c", 10), ("d", 3600)):
        stage(site, create_table(clocked, SUM | {"merge.max-staleness": f"{seconds} s"}, name))
        clock.move(seconds=5)
    clock.move(seconds=60)
    assert request_due_merges(clocked).tables == 3
    with clocked.reading() as repository:
        assert [one.table.name for one in repository.rounds.waiting()] == ["b", "c", "a"]


@pytest.mark.slow(reason="a worker looks for work in its own time")
def test_a_worker_merges_many_tables_in_few_commits(site: MergeSite, images: Images) -> None:
    tables = [create_table(site.database, SUM | {"merge.max-staleness": "0 s"}, f"t{number}") for number in range(40)]
    for table in tables:
        stage(site, table)
    before, _ = site.database.commits
    with working(site):
        assert until(lambda: merged(site, tables))
    assert site.database.commits[0] - before < len(tables)
    assert ones(site, images, tables) == [1] * 40


NOW = datetime(2026, 3, 1, tzinfo=UTC)


def waiting(
    name: str, records: int = 1, *, options: Mapping[str, str] = SUM, size_bytes: int = 100, plain: bool = True
) -> WaitingMerge:
    table = Table(name, "shop", name, 0, schema(options=options), None, NOW, NOW)
    return WaitingMerge(name, table, records, size_bytes, plain)


def names(merges: Sequence[WaitingMerge]) -> list[str]:
    return [merge.task_id for merge in merges]


def test_small_merges_wait_for_no_place_and_large_ones_for_no_round() -> None:
    found = choose([waiting("a", 10**6), waiting("b"), waiting("c", 10**6), waiting("d")], 1)
    assert names(found.together) == ["b", "d"]
    assert names(found.apart) == ["a"]
    assert choose([waiting("a", 10**6), waiting("b")], 0).apart == []
    assert names(choose([waiting("a", 10**6), waiting("b")], 0).together) == ["b"]


def test_a_round_takes_those_that_are_due_first() -> None:
    many = [waiting(f"t{number}") for number in range(3 * ROUND_MERGES)]
    assert names(choose(many, 4).together) == [f"t{number}" for number in range(ROUND_MERGES)]
    assert choose(many, 4).apart == []


def test_a_round_ends_before_the_first_that_has_no_room() -> None:
    found = choose([waiting("a"), waiting("b", size_bytes=ROUND_BYTES), waiting("c")], 4)
    assert names(found.together) == ["a"]
    assert found.apart == []  # it is small, and the next round begins with it
    assert names(choose([waiting("b", size_bytes=ROUND_BYTES), waiting("c")], 4).together) == ["b"]
    many = [waiting(f"t{number}", SMALL_RECORDS) for number in range(ROUND_MERGES)]
    assert len(choose(many, 4).together) == ROUND_RECORDS // SMALL_RECORDS


@pytest.mark.parametrize(
    "one",
    [
        waiting("x", SMALL_RECORDS + 1),
        waiting("x", size_bytes=ROUND_BYTES + 1),
        waiting("x", 0),
        waiting("x", plain=False),
        waiting("x", options=SUM | {"changelog-producer": "lookup"}),
        waiting("x", options=SUM | {"changelog-producer": "input"}),
        waiting("x", options=SUM | {"fields.n.aggregate-function": "product"}),
        waiting("x", options={"merge-engine": "no engine"}),
    ],
)
def test_what_a_round_cannot_do_as_a_whole_is_done_apart(one: WaitingMerge) -> None:
    found = choose([one], 1)
    assert (names(found.together), names(found.apart)) == ([], ["x"])
