"""Snapshots that a process has loaded are not read again, and are never wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.shared.snapshot_cache import MOST_OF_TABLE, SnapshotCache
from app.core.table.history import Run, Snapshot, SnapshotKind, Table
from app.files.named_files import files_of_run
from tests.catalog.builders import commit, create_table, request_and_claim, run


def statements(repository: Repository, work: Callable[[], object]) -> int:
    """How many statements ``work`` sends."""
    sent: list[str] = []

    def note(*args: Any) -> None:
        sent.append(args[2])

    engine = repository.transaction.connection.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    return len(sent)


def snapshot(number: int, files: int, table_id: str = "t") -> Snapshot:
    return Snapshot(number, table_id, (run(f"r{number}", files=files),), None, datetime.now(UTC))


def test_what_was_loaded_needs_no_query_but_the_tables_row(database: CatalogDatabase, table: Table) -> None:
    made = commit(database, request_and_claim(database, table), [run("a"), run("b")])
    for count in (3, 0, 0):
        with database.reading() as repository:
            named = repository.tables.get("shop", "wide")
            assert statements(repository, lambda: repository.snapshots.current_of(named)) == count  # noqa: B023  # runs at once
            assert repository.snapshots.current_of(named) == made


def summed(name: str) -> Run:
    """A run whose files have digests."""
    without = run(name)
    return replace(without, files=tuple(replace(file, digest="d", block_digests=b"12345678") for file in without.files))


def test_files_of_a_run_that_an_earlier_snapshot_named_are_not_read_again(database: CatalogDatabase) -> None:
    table = create_table(database)
    loaded = []
    for name in ("a", "b", "c"):
        claimed = request_and_claim(database, table)
        commit(database, claimed, [*(claimed.base.runs if claimed.base else ()), summed(name)])
        with database.reading() as repository:
            loaded.append(repository.snapshots.current(table.id))
    first, second, third = (found.runs for found in loaded if found is not None)
    assert [run.id for run in third] == ["a", "b", "c"]
    assert third == (summed("a"), summed("b"), summed("c"))
    assert third[0].files is second[0].files is first[0].files
    assert third[1].files is second[1].files


def test_files_without_digests_are_read_again_for_they_get_them_later(database: CatalogDatabase, table: Table) -> None:
    commit(database, request_and_claim(database, table), [run("a")])
    with database.reading() as repository:
        assert repository.snapshots.current(table.id) is not None
    with database.transaction() as repository:
        for file in files_of_run(table.id, run("a")):
            repository.damage.sum_up(file, "d", b"12345678")
    claimed = request_and_claim(database, table)
    commit(database, claimed, [run("a"), run("b")])
    with database.reading() as repository:
        current = repository.snapshots.current(table.id)
    assert [file.digest for file in current.runs[0].files] == ["d", "d"]


def test_a_commit_that_is_rolled_back_leaves_nothing_behind(database: CatalogDatabase, table: Table) -> None:
    commit(database, request_and_claim(database, table), [run("a")])
    with pytest.raises(ZeroDivisionError), database.transaction() as repository:
        repository.snapshots.commit(table.id, 1, [run("never")], SnapshotKind.COMPACTION)
        current = repository.snapshots.current(table.id)
        assert current.runs == (run("never"),)
        raise ZeroDivisionError
    with database.transaction() as repository:
        repository.snapshots.commit(table.id, 1, [run("b")], SnapshotKind.COMPACTION)
    with database.reading() as repository:
        assert repository.snapshots.get(table.id, 2).runs == (run("b"),)


def test_those_used_longest_ago_make_room() -> None:
    cache = SnapshotCache(most_files=30)
    for number in (1, 2, 3):
        cache.keep(snapshot(number, files=8))  # ten with the run and the snapshot itself
    assert cache.get("t", 1) is not None
    cache.keep(snapshot(4, files=8))
    assert [number for number in (1, 2, 3, 4) if cache.get("t", number)] == [1, 3, 4]
    cache.keep(snapshot(5, files=29))
    assert cache.get("t", 5) is None
    assert cache.get("u", 1) is None


def test_of_a_table_those_are_kept_that_were_loaded_last() -> None:
    kept = SnapshotCache()
    for number in range(MOST_OF_TABLE + 2):
        kept.keep(snapshot(number, files=1))
    kept.keep(snapshot(0, files=1, table_id="other"))
    assert [number for number in range(MOST_OF_TABLE + 2) if kept.get("t", number) is None] == [0, 1]
    assert kept.get("other", 0) is not None
