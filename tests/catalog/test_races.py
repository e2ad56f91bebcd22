"""Operations that wait for another transaction see what it left behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, ErrorCode, KeyfoldError, NotFound
from app.core.table.history import Table
from tests.catalog.builders import add_batch, claim_next, create_table, new_batch, post, request_and_claim, run, schema


def outcome_after(
    database: CatalogDatabase, first: Callable[[Repository], object], second: Callable[[Repository], object]
) -> object:
    """What ``second`` returns or raises when it begins while ``first``'s transaction is still open."""

    def run_second() -> object:
        try:
            with database.transaction() as repository:
                return second(repository)
        except KeyfoldError as error:
            return error

    with ThreadPoolExecutor(1) as threads:
        with database.transaction() as repository:
            first(repository)
            later = threads.submit(run_second)
            wait([later], timeout=0.3)  # time to reach the lock; when it is too short the outcome is still the same
        return later.result()


@pytest.mark.parametrize(
    "operation",
    [
        lambda repository: repository.tables.create("shop", "late", schema()),
        lambda repository: repository.databases.update_options("shop", [], {"a": "b"}),
        lambda repository: repository.databases.drop("shop"),
    ],
    ids=["create_table", "update_database_options", "drop_database"],
)
def test_a_database_that_is_being_dropped_is_not_found(
    database: CatalogDatabase, operation: Callable[[Repository], object]
) -> None:
    with database.transaction() as repository:
        repository.databases.create("shop", {})
    outcome = outcome_after(database, lambda repository: repository.databases.drop("shop"), operation)
    assert isinstance(outcome, NotFound)
    assert outcome.code is ErrorCode.DATABASE_NOT_FOUND


def test_a_database_that_is_getting_a_table_is_not_dropped(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.databases.create("shop", {})
    outcome = outcome_after(
        database,
        lambda repository: repository.tables.create("shop", "early", schema()),
        lambda repository: repository.databases.drop("shop"),
    )
    assert isinstance(outcome, Conflict)
    assert outcome.code is ErrorCode.DATABASE_NOT_EMPTY


def test_a_table_that_is_being_renamed_is_not_dropped_under_its_old_name(database: CatalogDatabase) -> None:
    table = create_table(database, "old")

    def rename_and_replace(repository: Repository) -> None:
        repository.tables.rename("shop", "old", "shop", "new")
        repository.tables.create("shop", "old", schema())

    outcome = outcome_after(database, rename_and_replace, lambda repository: repository.tables.drop("shop", "old"))
    assert isinstance(outcome, NotFound) or getattr(outcome, "id", table.id) != table.id
    with database.reading() as repository:
        assert repository.tables.get("shop", "new").id == table.id


def test_a_batch_for_a_table_that_is_being_dropped_is_refused(database: CatalogDatabase, table: Table) -> None:
    outcome = outcome_after(
        database,
        lambda repository: repository.tables.drop("shop", "wide"),
        lambda repository: add_batch(repository, table.id, new_batch()),
    )
    assert isinstance(outcome, NotFound)


def test_a_batch_is_either_withdrawn_or_claimed(database: CatalogDatabase, table: Table) -> None:
    batch = post(database, table)
    request_and_claim(database, table, lease_seconds=0)
    outcome = outcome_after(
        database,
        lambda repository: claim_next(repository, "worker", 600),
        lambda repository: repository.batches.delete_staged(table.id, batch.id),
    )
    assert isinstance(outcome, Conflict)
    assert outcome.code is ErrorCode.BATCH_NOT_STAGED


def test_a_lease_that_is_being_taken_over_is_not_renewed(database: CatalogDatabase, table: Table) -> None:
    late = request_and_claim(database, table, "late", lease_seconds=0)
    outcome = outcome_after(
        database,
        lambda repository: claim_next(repository, "alive", 600),
        lambda repository: repository.claimed_tasks.renew(late.task.id, "late", 600, 0.5, {}),
    )
    assert isinstance(outcome, Conflict)


def test_a_lease_that_is_being_renewed_is_not_taken_over(database: CatalogDatabase, table: Table) -> None:
    late = request_and_claim(database, table, "late", lease_seconds=0)
    outcome = outcome_after(
        database,
        lambda repository: repository.claimed_tasks.renew(late.task.id, "late", 600, 0.5, {}),
        lambda repository: claim_next(repository, "alive", 600),
    )
    assert outcome is None


def test_a_merge_that_is_being_dropped_with_its_table_is_neither_claimed_nor_committed(
    database: CatalogDatabase,
) -> None:
    table = create_table(database)
    late = request_and_claim(database, table, "late", lease_seconds=0)
    outcome = outcome_after(
        database,
        lambda repository: repository.tables.drop("shop", "wide"),
        lambda repository: claim_next(repository, "alive", 600),
    )
    assert outcome is None
    table = create_table(database)
    late = request_and_claim(database, table, "late", lease_seconds=0)
    outcome = outcome_after(
        database,
        lambda repository: repository.tables.drop("shop", "wide"),
        lambda repository: repository.claimed_tasks.commit_merge(
            late.task.id, "late", [run("r")], base_snapshot_id=None, rows=1, records=1
        ),
    )
    assert isinstance(outcome, Conflict)
    assert outcome.code is ErrorCode.COMMIT_CONFLICT
