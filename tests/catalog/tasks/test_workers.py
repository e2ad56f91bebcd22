"""What workers have under way, as their leases say."""

from __future__ import annotations

from app.catalog.database import CatalogDatabase
from app.core.table.history import TaskKind, TaskTrigger
from tests.catalog.builders import commit, create_table, post, request_and_claim, run


def test_a_lease_is_known_while_it_is_held(database: CatalogDatabase) -> None:
    table = create_table(database)
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
