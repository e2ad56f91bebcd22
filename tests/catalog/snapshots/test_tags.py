"""Tags of the catalog: what they keep, when they end, and what they refuse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import AlreadyExists, ErrorCode, NotFound
from app.core.table.history import Table
from tests.catalog.builders import create_table, grow


def tag(
    database: CatalogDatabase, table: Table, name: str, number: int | None = None, retained: timedelta | None = None
) -> None:
    with database.transaction() as repository:
        repository.tags.create(table.id, name, number, retained)


def numbers(database: CatalogDatabase, table: Table) -> list[int]:
    with database.reading() as repository:
        return [snapshot.id for snapshot in repository.snapshots.page(table.id, limit=99)]


def test_a_tag_keeps_its_snapshot_and_runs_until_it_is_deleted(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, "a", "b", "c")
    tag(database, table, "kept", 2)
    with database.transaction() as repository:
        assert repository.snapshots.expire(table.id, []) == [1]
        assert repository.snapshots.live_run_ids(table.id) == {(table.id, "b"), (table.id, "c")}
    with database.transaction() as repository:
        repository.tags.delete(table.id, "kept")
        assert repository.snapshots.expire(table.id, []) == [2]
        assert repository.snapshots.live_run_ids() == {(table.id, "c")}


def test_a_tag_without_a_number_is_on_the_current_snapshot(database: CatalogDatabase, table: Table) -> None:
    with pytest.raises(NotFound) as nothing:
        tag(database, table, "early")
    assert nothing.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
    grow(database, table, "a", "b")
    tag(database, table, "now")
    with database.reading() as repository:
        found = repository.tags.get(table.id, "now")
    assert (found.snapshot_id, found.expires_at) == (2, None)


def test_a_tag_of_a_snapshot_that_is_gone_is_refused(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, "a", "b")
    with database.transaction() as repository:
        repository.snapshots.expire(table.id, [])
    for number in (1, 3, 0, -1, 10**30):
        with pytest.raises(NotFound) as gone:
            tag(database, table, "late", number)
        assert gone.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
        assert "the earliest is 2, the latest 2" in gone.value.message


def test_a_name_is_given_once_per_table_and_the_transaction_goes_on(database: CatalogDatabase) -> None:
    table, other = create_table(database), create_table(database, "other")
    grow(database, table, "a", "b")
    grow(database, other, "z")
    tag(database, table, "v1", 1)
    tag(database, other, "v1")
    with database.transaction() as repository:
        for number in (1, 2):
            with pytest.raises(AlreadyExists) as twin:
                repository.tags.create(table.id, "v1", number, None)
            assert twin.value.code is ErrorCode.TAG_ALREADY_EXISTS
        repository.tags.create(table.id, "v2", 2, None)
    with database.reading() as repository:
        assert [(one.name, one.snapshot_id) for one in repository.tags.page(table.id, limit=9)] == [
            ("v1", 1),
            ("v2", 2),
        ]


def test_pages_of_tags_come_in_name_order_and_may_be_of_a_prefix(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, "a")
    for name in ("b_2", "A", "b%1", "ü", "b", "a"):
        tag(database, table, name)
    with database.reading() as repository:
        names = [one.name for one in repository.tags.page(table.id, limit=9)]
        assert names == ["A", "a", "b", "b%1", "b_2", "ü"]
        assert [one.name for one in repository.tags.page(table.id, after="a", limit=2)] == ["b", "b%1"]
        assert [one.name for one in repository.tags.page(table.id, limit=9, prefix="b")] == ["b", "b%1", "b_2"]
        assert [one.name for one in repository.tags.page(table.id, limit=9, prefix="b%")] == ["b%1"]
        assert [one.name for one in repository.tags.page(table.id, limit=9, prefix="b_")] == ["b_2"]
        assert {one.name for one in repository.tags.on(table.id, [1, 5])} == set(names)


def test_a_tag_that_is_not_there_is_not_found(database: CatalogDatabase, table: Table) -> None:
    with pytest.raises(NotFound) as missing, database.reading() as repository:
        repository.tags.get(table.id, "v1")
    assert (missing.value.code, missing.value.resource_type) == (ErrorCode.TAG_NOT_FOUND, "TAG")
    with pytest.raises(NotFound), database.transaction() as repository:
        repository.tags.delete(table.id, "v1")


@pytest.mark.slow(reason="threads race for a while")
def test_a_snapshot_is_tagged_or_expires_but_never_both(database: CatalogDatabase, table: Table) -> None:
    grow(database, table, *(f"r{number}" for number in range(30)))

    def expire(number: int) -> None:
        with database.transaction() as repository:
            repository.snapshots.expire(table.id, range(number, 99))

    def try_tag(number: int) -> bool:
        try:
            tag(database, table, f"t{number}", number)
        except NotFound:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        expiries = [threads.submit(expire, number) for number in range(2, 31, 4)]
        tagged = list(threads.map(try_tag, range(1, 31)))
        assert [expiry.result() for expiry in expiries]
    left = numbers(database, table)
    assert {number for number in range(1, 31) if tagged[number - 1]} <= set(left)
    with database.reading() as repository:
        assert all(repository.snapshots.get(table.id, number).runs for number in left)
