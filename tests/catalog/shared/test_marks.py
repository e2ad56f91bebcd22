"""Marks: every commit that changes what lookups see is told to all processes of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.shared.marks import TOKENS, Marks
from app.catalog.shared.models import tables
from tests.catalog.builders import add_batch, new_batch
from tests.services.builders import SUM, create_table, schema


def test_marks_are_shared_through_the_file(tmp_path: Path) -> None:
    mine, other = Marks(tmp_path / "new" / "marks"), Marks(tmp_path / "new" / "marks")
    assert mine.identity == other.identity != Marks(tmp_path / "else").identity
    before, last = other.mark("t1"), other.last
    mine.change(["t1"])
    assert other.mark("t1") == mine.mark("t1") != before
    assert other.last != last


@pytest.mark.parametrize("size", [0, 4096, 40_000])
def test_a_file_of_another_size_is_made_again_and_nobody_dies_of_it(tmp_path: Path, size: int) -> None:
    path = tmp_path / "marks"
    mine, other = Marks(path), Marks(path)
    before = mine.mark("t1"), other.mark("t1")
    os.truncate(path, size)
    other.change(["t1"])
    assert mine.mark("t1") == other.mark("t1") not in before
    assert path.stat().st_size == 32_768
    path.write_bytes(b"")
    assert Marks(path).identity == mine.identity


def test_a_file_that_was_replaced_or_removed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    mine = Marks(path)
    before = mine.mark("t1")
    for end in (path.unlink, lambda: path.replace(tmp_path / "aside")):
        end()
        other = Marks(path)
        other.change(["t1"])
        deadline = time.monotonic() + 10
        while mine.mark("t1") != other.mark("t1"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert mine.mark("t1") != before


def test_processes_that_come_at_once_map_the_same_file(tmp_path: Path) -> None:
    code = "import pathlib, sys, app.catalog.shared.marks as m; print(m.Marks(pathlib.Path(sys.argv[1])).identity)"
    found = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "new" / "marks")], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    assert len({process.communicate()[0] for process in found}) == 1


def test_a_mark_of_one_table_is_not_that_of_another(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    before = marks.mark("t2")
    marks.change(["t1"])
    assert marks.mark("t2") == before
    marks.change_all()
    assert marks.mark("t2") != before


def test_a_commit_that_lookups_see_changes_the_mark_and_another_does_not(database: CatalogDatabase) -> None:
    table = create_table(database)
    other = create_table(database, name="other")

    def marks() -> tuple[int, int]:
        return database.marks.mark(table.id), database.marks.mark(other.id)

    before = marks()
    with database.transaction() as repository:
        batch = add_batch(repository, table.id, new_batch())
    posted = marks()
    assert posted[0] != before[0]
    with database.transaction() as repository:
        repository.batches.delete_staged(table.id, batch.id)
    withdrawn = marks()
    with database.transaction() as repository:
        repository.tables.alter(table.id, 0, schema(("id", "BIGINT"), ("n", "BIGINT"), options=SUM | {"bucket": "1"}))
    altered = marks()
    with database.transaction() as repository:
        repository.tables.rename("shop", "wide", "shop", "renamed")
    renamed = marks()
    with database.transaction() as repository:
        repository.tables.drop("shop", "renamed")
    seen = [one[0] for one in (before, posted, withdrawn, altered, renamed, marks())]
    assert len(set(seen)) == len(seen)
    quiet = marks()
    with database.transaction() as repository:
        repository.databases.create("another", {})
        repository.tables.lock(other.id)
    with database.reading() as repository:
        repository.tables.get("shop", "other")
    assert marks() == quiet
    assert quiet[1] == before[1]


def test_a_change_of_tables_that_nobody_locked_counts_for_all(database: CatalogDatabase) -> None:
    table = create_table(database)
    before = database.marks.mark(table.id)
    with database.transaction() as repository:
        repository.transaction.execute(tables.delete().where(tables.c.id == "another"))
    assert database.marks.mark(table.id) != before


def test_what_is_rolled_back_may_be_marked_and_a_failed_commit_must(database: CatalogDatabase) -> None:
    table = create_table(database)
    before = database.marks.mark(table.id)
    with pytest.raises(ZeroDivisionError), database.transaction() as repository:
        add_batch(repository, table.id, new_batch())
        raise ZeroDivisionError
    assert database.marks.mark(table.id) != before


@pytest.mark.parametrize("catalog_kind", ["postgresql"], indirect=True)
def test_postgresql_tells_other_machines_and_not_its_own(catalog_url: str, tmp_path: Path) -> None:
    here, there = (CatalogDatabase(catalog_url, folder=tmp_path / name) for name in ("here", "there"))
    at_home = CatalogDatabase(catalog_url, folder=tmp_path / "here")
    notifications = here.notifications()
    assert notifications is not None
    table = create_table(here)
    with at_home.transaction() as repository:
        add_batch(repository, table.id, new_batch())
    assert list(notifications.within(0.3)) == []
    with there.transaction() as repository:
        add_batch(repository, table.id, new_batch())
    assert next(notifications.within(10)) == table.id
    with there.transaction() as repository:
        repository.tokens.add("till", "a digest")
    assert next(notifications.within(10)) == TOKENS
    notifications.close()
    for database in (here, there, at_home):
        database.close()
