"""One request for several tables, while others drop, alter and post: all of it is stored, or nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.access import EVERYBODY
from app.core.errors import Conflict, Invalid, TooLarge
from app.core.plan.records.bounds import Bounds
from app.core.table.history import Batch, NewBatch
from app.files.layout import Warehouse
from app.services.batches.batches import Upload, accept_batch
from app.services.batches.batches_of_tables import AcceptedBatches, TablesIntake, UnknownTables, UploadOfTables
from app.services.batches.group_commit import GroupCommit
from app.services.bodies.formats import JSON
from app.services.rows.known_rows import KnownRows, no_rows
from tests.services.builders import batches_of, create_table, schema

A, B = {"id": 1, "n": 1}, {"id": 2, "n": 2}


def request(skip: bool = False, key: str | None = None, **records: list[dict[str, Any]]) -> UploadOfTables:
    tables = {name: {"records": some} for name, some in records.items()}
    unknown = UnknownTables.SKIP if skip else UnknownTables.REFUSE
    return UploadOfTables(Upload(json.dumps({"tables": tables}).encode(), JSON, key), EVERYBODY, unknown)


class Site:
    """A catalog with the tables ``a`` and ``b``, and its warehouse."""

    def __init__(self, database: CatalogDatabase, warehouse: Warehouse) -> None:
        self.database, self.warehouse = database, warehouse
        self.tables = {name: create_table(database, name=name) for name in "ab"}

    def accept(
        self, sent: UploadOfTables, meanwhile: Callable[[str], None] = lambda _: None, bounds: Bounds | None = None
    ) -> AcceptedBatches:
        """As a process of its own; ``meanwhile`` is called once the table of this name is about to be read."""

        def known(name: tuple[str, str]) -> KnownRows:
            meanwhile(name[1])
            return no_rows

        commits = GroupCommit(self.database, self.warehouse)
        return TablesIntake(self.database, self.warehouse, bounds or Bounds(100), commits, known).accept("shop", sent)

    def batches(self, name: str) -> list[Batch]:
        return batches_of(self.database, self.tables[name])

    def files(self) -> set[str]:
        return {path.name for path in Path(self.warehouse.path()).rglob("staging/*")}

    def alter(self, name: str, *columns: tuple[str, str]) -> None:
        with self.database.transaction() as repository:
            now = repository.tables.get("shop", name)
            changed = schema(*(("id", "BIGINT"), ("n", "BIGINT"), *columns), options=now.schema.options)
            repository.tables.alter(now.id, now.schema_id, changed)


class TooLate(GroupCommit):
    """Commits of batches whose table was altered since their records were read."""

    def enter(self, table_id: str, new: NewBatch) -> Batch:
        raise Conflict(f"table {table_id} was altered before {new.id}")


@pytest.fixture
def two(database: CatalogDatabase, warehouse: Warehouse) -> Site:
    return Site(database, warehouse)


def test_each_table_has_its_batch_and_its_file(two: Site) -> None:
    done = two.accept(request(a=[A, A], b=[B]))
    assert [(batch.table, batch.batch.records) for batch in done.batches] == [("a", 2), ("b", 1)]
    assert two.files() == {batch.batch.file for batch in done.batches}
    assert [two.batches(name)[0].number for name in "ab"] == [1, 1]


def test_the_records_of_all_tables_count_for_the_bound(two: Site) -> None:
    with pytest.raises(TooLarge, match="at most 3 records"):
        two.accept(request(a=[A, A], b=[B, B]), bounds=Bounds(3))
    assert (two.batches("a"), two.batches("b"), two.files()) == ([], [], set())


def test_no_file_stays_of_a_request_with_faults(two: Site) -> None:
    with pytest.raises(Invalid) as raised:
        two.accept(request(a=[A], b=[B, {"id": "no"}]))
    assert [(fault.table, fault.row) for fault in raised.value.violations] == [("b", 1)]
    assert (two.batches("a"), two.files()) == ([], set())


def test_a_table_that_is_altered_meanwhile_is_read_again(two: Site) -> None:
    left = [("more", "STRING")]
    done = two.accept(request(a=[A], b=[B]), lambda _: two.alter("a", left.pop()) if left else None)
    assert [batch.batch.schema_id for batch in done.batches] == [1, 0]
    assert two.files() == {batch.batch.file for batch in done.batches}


def test_a_table_that_is_altered_all_the_time_keeps_all_out(two: Site) -> None:
    numbers = iter(range(100))

    def alter(name: str) -> None:
        columns = [(f"c{number}", "STRING") for number in range(next(numbers) + 1)]
        two.alter("a", *columns)

    with pytest.raises(Conflict, match="again and again") as of_tables:
        two.accept(request(a=[A], b=[B]), alter)
    upload, late = Upload(json.dumps([A]).encode(), JSON), TooLate(two.database, two.warehouse)
    with pytest.raises(Conflict, match="again and again") as of_one:
        accept_batch(two.database, two.warehouse, "shop", "a", upload, Bounds(100), late)
    assert [refusal.value.retry_seconds for refusal in (of_tables, of_one)] == [1, 1]
    assert (two.batches("a"), two.batches("b"), two.files()) == ([], [], set())


def test_a_table_that_is_dropped_meanwhile_keeps_all_out(two: Site) -> None:
    left = ["a"]

    def drop(name: str) -> None:
        if name == "b" and left:
            with two.database.transaction() as repository:
                repository.tables.drop("shop", left.pop())

    with pytest.raises(Invalid) as raised:
        two.accept(request(a=[A], b=[B]), drop)
    assert [fault.pointer for fault in raised.value.violations] == ["/tables/a"]
    assert two.batches("b") == []
    assert two.files() == set()


def test_the_same_request_in_two_processes_is_stored_once(two: Site) -> None:
    sent = request(key="k", a=[A], b=[B])
    first: list[AcceptedBatches] = []
    done = two.accept(sent, lambda _: first.append(two.accept(sent)) if not first else None)
    assert done.replayed
    assert [batch.batch.id for batch in done.batches] == [batch.batch.id for batch in first[0].batches]
    assert two.files() == {batch.batch.file for batch in done.batches}


def test_who_sees_a_new_table_answers_what_the_first_request_stored(two: Site) -> None:
    """The first request skips table c, which is made while it is read; the same request, sent again, finds c."""
    sent = request(skip=True, key="k", a=[A], c=[B])
    began, over = threading.Event(), threading.Event()
    second: list[AcceptedBatches] = []

    def wait(_: str) -> None:
        began.set()
        assert over.wait(60)

    thread = threading.Thread(target=lambda: second.append(two.accept(sent, wait)))

    def make_table(_: str) -> None:
        two.tables["c"] = create_table(two.database, name="c")
        thread.start()
        assert began.wait(60)

    first = two.accept(sent, make_table)
    over.set()
    thread.join()
    assert first.skipped == {"c": 1}
    assert second[0].replayed
    assert [batch.batch.id for batch in second[0].batches] == [batch.batch.id for batch in first.batches]
    assert (two.batches("c"), two.files()) == ([], {first.batches[0].batch.file})
