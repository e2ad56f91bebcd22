"""Batches of the catalog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Conflict, ErrorCode, KeyReused, NotFound
from app.core.table.history import BatchState, Table
from tests.catalog.builders import add_batch, commit, create_table, new_batch, post, request_and_claim, run


def test_a_batch_of_another_table_is_not_found(database: CatalogDatabase) -> None:
    one, two = create_table(database, "one"), create_table(database, "two")
    batch = post(database, one)
    with pytest.raises(NotFound) as missing, database.reading() as repository:
        repository.batches.get(two.id, batch.id)
    assert missing.value.code is ErrorCode.BATCH_NOT_FOUND


def test_a_rolled_back_batch_leaves_no_gap(database: CatalogDatabase, table: Table) -> None:
    post(database, table)
    with pytest.raises(ZeroDivisionError), database.transaction() as repository:
        assert add_batch(repository, table.id, new_batch()).number == 2
        raise ZeroDivisionError
    assert post(database, table).number == 2


def test_concurrent_batches_get_every_number_once_and_become_visible_in_order(database: CatalogDatabase) -> None:
    table = create_table(database)

    def post_and_look(_: int) -> tuple[int, list[int]]:
        number = post(database, table).number
        with database.reading() as repository:
            return number, [batch.number for batch in repository.batches.staged(table.id)]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(post_and_look, range(40)))
    assert sorted(number for number, _ in answers) == list(range(1, 41))
    for number, visible in answers:
        assert visible == list(range(1, len(visible) + 1))
        assert number <= len(visible)


def test_a_key_with_another_request_is_refused_but_may_be_used_for_another_table(database: CatalogDatabase) -> None:
    one, two = create_table(database, "one"), create_table(database, "two")
    with database.transaction() as repository:
        add_batch(repository, one.id, new_batch("key"))
        with pytest.raises(KeyReused):
            add_batch(repository, one.id, new_batch("key", fingerprint="other body"))
        assert add_batch(repository, two.id, new_batch("key", fingerprint="other body")).number == 1


def test_one_of_many_concurrent_posts_with_one_key_becomes_a_batch(database: CatalogDatabase, table: Table) -> None:

    def add(_: int) -> str:
        with database.transaction() as repository:
            return add_batch(repository, table.id, new_batch("key")).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(add, range(16)))) == 1
    with database.reading() as repository:
        assert len(repository.batches.staged(table.id)) == 1


def test_a_staged_batch_can_be_withdrawn_twice_and_keeps_its_number_and_key(database: CatalogDatabase) -> None:
    table = create_table(database)
    with database.transaction() as repository:
        batch = add_batch(repository, table.id, new_batch("key"))
    for _ in range(2):
        with database.transaction() as repository:
            assert repository.batches.delete_staged(table.id, batch.id).state is BatchState.DELETED
    with database.transaction() as repository:
        assert repository.batches.staged(table.id) == []
        assert repository.batches.live_staging_files(table.id) == set()
        assert add_batch(repository, table.id, new_batch("key")).id == batch.id
    assert post(database, table).number == 2


def test_a_claimed_or_merged_batch_cannot_be_withdrawn(database: CatalogDatabase, table: Table) -> None:
    batch = post(database, table)
    claimed = request_and_claim(database, table)
    with pytest.raises(Conflict) as refused, database.transaction() as repository:
        repository.batches.delete_staged(table.id, batch.id)
    assert refused.value.code is ErrorCode.BATCH_NOT_STAGED
    commit(database, claimed, [run("r")])
    with pytest.raises(Conflict) as refused, database.transaction() as repository:
        repository.batches.delete_staged(table.id, batch.id)
    assert refused.value.code is ErrorCode.BATCH_NOT_STAGED


def test_pages_of_batches_are_in_number_order_and_filtered_by_state(database: CatalogDatabase, table: Table) -> None:
    merged = [post(database, table).number for _ in range(3)]
    commit(database, request_and_claim(database, table), [run("r")])
    staged = [post(database, table).number for _ in range(2)]
    with database.reading() as repository:
        page = repository.batches.page(table.id, after_number=1, limit=3)
        assert [batch.number for batch in page] == [2, 3, 4]
        for state, numbers in ((BatchState.MERGED, merged), (BatchState.STAGED, staged), (BatchState.DELETED, [])):
            page = repository.batches.page(table.id, limit=9, state=state)
            assert [batch.number for batch in page] == numbers
        assert repository.batches.page(table.id, after_number=10**30, limit=9) == []
        assert len(repository.batches.page(table.id, after_number=-(10**30), limit=9)) == 5
