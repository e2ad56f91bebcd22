"""Merges of the catalog as their requesters see them, the backlogs, and what workers have under way."""

from __future__ import annotations

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import ErrorCode, Invalid, NotFound
from app.core.table.history import Table, TaskKind, TaskState, TaskTrigger
from tests.catalog.builders import claim_next, commit, create_table, post, request_and_claim, run


def test_a_table_has_one_pending_merge_however_often_it_is_requested(database: CatalogDatabase) -> None:
    one, two = create_table(database, "one"), create_table(database, "two")
    with database.transaction() as repository:
        first = repository.tasks.request(one.id, TaskTrigger.REQUEST)
        assert (first.state, first.trigger) == (TaskState.PENDING, TaskTrigger.REQUEST)
        assert repository.tasks.request(one.id, TaskTrigger.ROWS) == first
        assert repository.tasks.request(two.id, TaskTrigger.ROWS).id != first.id
        assert repository.tasks.get(one.id, first.id) == first


def test_a_merge_of_a_missing_table_cannot_be_asked_for(database: CatalogDatabase) -> None:
    with pytest.raises(NotFound) as missing, database.transaction() as repository:
        repository.tasks.request("none", TaskTrigger.REQUEST)
    assert missing.value.code is ErrorCode.TABLE_NOT_FOUND


def test_a_merge_of_another_table_is_not_found(database: CatalogDatabase) -> None:
    one, two = create_table(database, "one"), create_table(database, "two")
    with database.transaction() as repository:
        merge = repository.tasks.request(one.id, TaskTrigger.REQUEST)
        for operation in (repository.tasks.get, repository.tasks.request_cancel):
            with pytest.raises(NotFound) as missing:
                operation(two.id, merge.id)
            assert missing.value.code is ErrorCode.MERGE_NOT_FOUND


def test_pages_of_merges_cover_all_of_them_newest_first(database: CatalogDatabase) -> None:
    table, other = create_table(database), create_table(database, "other")
    request_and_claim(database, other)
    ids = []
    for _ in range(5):
        claimed = request_and_claim(database, table)
        commit(database, claimed, [])
        ids.append(claimed.task.id)
    seen: list[str] = []
    with database.reading() as repository:
        while page := repository.tasks.page(table.id, after=seen[-1] if seen else None, limit=2):
            seen += [merge.id for merge in page]
        with pytest.raises(Invalid):
            repository.tasks.page(table.id, after="no id", limit=1)
    assert seen == ids[::-1]


def test_cancelling_a_running_merge_asks_its_worker(database: CatalogDatabase, table: Table) -> None:
    post(database, table)
    claimed = request_and_claim(database, table)
    with database.transaction() as repository:
        assert repository.claimed_tasks.renew(claimed.task.id, "worker", 600, 0.25, {"files": 1}) is False
        asked = repository.tasks.request_cancel(table.id, claimed.task.id)
        assert (asked.state, asked.cancel_requested) == (TaskState.RUNNING, True)
        assert (asked.progress, asked.progress_detail) == (0.25, {"files": 1})
        assert repository.claimed_tasks.renew(claimed.task.id, "worker", 600, 0.5, {}) is True
        ended = repository.claimed_tasks.fail(claimed.task.id, "worker", "cancelled on request", cancelled=True)
        assert (ended.state, ended.error) == (TaskState.CANCELLED, "cancelled on request")
        assert [batch.merge_id for batch in repository.batches.staged(table.id)] == [None]


def test_backlogs_count_what_no_merge_has_claimed(database: CatalogDatabase) -> None:
    busy, asked, idle = (create_table(database, name) for name in ("busy", "asked", "idle"))
    first, last = post(database, busy, records=3), post(database, busy, records=4)
    with database.transaction() as repository:
        repository.tasks.request(asked.id, TaskTrigger.REQUEST)
    with database.reading() as repository:
        backlogs = {backlog.table.name: backlog for backlog in repository.tasks.backlogs()}
    assert set(backlogs) == {"busy", "asked"}
    assert (backlogs["busy"].table, backlogs["busy"].batches, backlogs["busy"].records) == (busy, 2, 7)
    assert backlogs["busy"].oldest_accepted_at == first.accepted_at
    assert backlogs["busy"].newest_accepted_at == last.accepted_at
    assert (backlogs["asked"].batches, backlogs["asked"].records) == (0, 0)
    assert backlogs["asked"].oldest_accepted_at is None
    with database.transaction() as repository:
        assert claim_next(repository, "worker", 600) is not None
        assert [backlog.table.name for backlog in repository.tasks.backlogs()] == ["busy"]
    request_and_claim(database, busy)
    with database.reading() as repository:
        assert repository.tasks.backlogs() == []
    newest = post(database, busy, records=5)
    with database.reading() as repository:
        [left] = repository.tasks.backlogs()
        assert (left.batches, left.records, left.oldest_accepted_at) == (1, 5, newest.accepted_at)
    assert idle.name == "idle"


def test_a_lease_is_known_while_it_is_held(database: CatalogDatabase, table: Table) -> None:
    post(database, table)
    claimed = request_and_claim(database, table)
    with database.reading() as repository:
        (lease,) = repository.workers.leases(10)
    assert (lease.table, lease.task_id, lease.owner) == (table.name, claimed.task.id, claimed.lease_owner)
    assert (lease.kind, lease.batches) == (TaskKind.MERGE, 1)
    assert lease.started_at
    assert lease.expires_at
    assert lease.started_at < lease.expires_at
    commit(database, claimed, [run("a")])
    with database.reading() as repository:
        assert repository.workers.leases(10) == []


def test_what_nobody_has_begun_is_counted_by_kind(database: CatalogDatabase) -> None:
    tables = [create_table(database, name) for name in ("a", "b")]
    with database.transaction() as repository:
        repository.tasks.request_all({table.id: TaskTrigger.REQUEST for table in tables})
    request_and_claim(database, tables[0])
    with database.reading() as repository:
        assert repository.workers.waiting() == {TaskKind.MERGE: 1, TaskKind.COMPACTION: 0}
        assert len(repository.workers.leases(1)) == 1
