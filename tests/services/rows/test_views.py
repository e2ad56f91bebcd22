"""Views: current without a query, and never behind what any process was told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import DamagedCatalog, NotFound
from app.core.table.history import Table
from app.files.layout import Warehouse
from app.services.batches.batches import withdraw_batch
from app.services.rows.kept_views import Views
from app.services.rows.lookups import Consistency, Images, row_of
from app.services.rows.views import View
from tests.services.builders import SUM, create_table, merge_staged, post, schema

WIDE = ("shop", "wide")
MERGED, LATEST = Consistency.MERGED, Consistency.LATEST


class Counted(CatalogDatabase):
    """Counts the transactions that read."""

    readings = 0

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        self.readings += 1
        with super().reading() as repository:
            yield repository


@pytest.fixture
def counted(catalog_url: str, tmp_path: Path) -> Iterator[Counted]:
    """The process that looks up; ``writer`` is another one of the same machine."""
    opened = Counted(catalog_url, folder=tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def writer(catalog_url: str, tmp_path: Path) -> Iterator[CatalogDatabase]:
    opened = CatalogDatabase(catalog_url, folder=tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def views(counted: Counted, warehouse: Warehouse) -> Views:
    return Views(counted, warehouse)


@pytest.fixture
def look(images: Images) -> Callable[[View], Any]:
    """The number in row 1, None where there is none."""

    def number(view: View) -> Any:
        try:
            found = row_of(view, images, ["1"])
        except NotFound:
            return None
        return found.row["n"]

    return number


@pytest.fixture
def table(writer: CatalogDatabase) -> Table:
    return create_table(writer)


Look = Callable[[View], Any]


def test_a_table_that_nobody_changes_is_requested_once(
    views: Views, counted: Counted, writer: CatalogDatabase, warehouse: Warehouse, table: Table, look: Look
) -> None:
    post(writer, warehouse, {"id": 1, "n": 5})
    assert look(views.current(WIDE, LATEST)) == 5
    asked = counted.readings
    assert views.recall(WIDE, LATEST) is views.current(WIDE, LATEST)
    assert look(views.current(WIDE, MERGED)) is None
    assert counted.readings == asked
    create_table(writer, name="other")
    post(writer, warehouse, {"id": 1, "n": 5}, name="other")
    assert views.recall(WIDE, None) is not None
    with pytest.raises(NotFound):
        views.current(("shop", "none"), None)
    assert counted.readings == asked + 1


def test_what_another_process_was_reported_is_seen_at_once(
    views: Views, writer: CatalogDatabase, warehouse: Warehouse, table: Table, look: Look
) -> None:
    seen = []
    for number in range(1, 4):
        post(writer, warehouse, {"id": 1, "n": number})
        view = views.current(WIDE, None)
        seen.append((look(view), view.last_batch, view.snapshot_id, view.unread))
    merge_staged(writer, warehouse, table.id)
    post(writer, warehouse, {"id": 1, "n": 100})
    view, merged = views.current(WIDE, None), views.current(WIDE, MERGED)
    assert seen == [(1, 1, None, ()), (3, 2, None, ()), (6, 3, None, ())]
    assert (look(view), view.last_batch, view.snapshot_id) == (106, 4, 1)
    assert (look(merged), merged.last_batch, merged.snapshot_id) == (6, 3, 1)


def test_a_table_is_known_until_another_process_changes_it(
    views: Views, counted: Counted, writer: CatalogDatabase, table: Table
) -> None:
    assert views.known_table(WIDE) is None
    assert views.current_table(WIDE) == table
    assert not views.take_used()  # no lookup: no images are made of it
    readings = counted.readings
    assert views.known_table(WIDE) == table
    assert counted.readings == readings
    with writer.transaction() as repository:
        repository.tables.alter(table.id, 0, schema(options=SUM | {"lookup.consistency": "merged"}))
    assert views.known_table(WIDE) is None
    assert views.current_table(WIDE).schema_id == 1
    assert views.current(WIDE, MERGED).table == views.known_table(WIDE)
    with writer.transaction() as repository:
        repository.tables.rename("shop", "wide", "shop", "renamed")
    assert views.known_table(WIDE) is None
    with pytest.raises(NotFound):
        views.current_table(WIDE)


def test_a_table_is_shown_although_its_snapshot_is_damaged(
    views: Views, writer: CatalogDatabase, warehouse: Warehouse, table: Table
) -> None:
    post(writer, warehouse, {"id": 1, "n": 1})
    merge_staged(writer, warehouse, table.id)
    with writer.transaction() as repository:
        repository.transaction.execute(sa.text("DELETE FROM snapshot_runs"))
    with pytest.raises(DamagedCatalog):
        views.current(WIDE, MERGED)
    assert views.current_table(WIDE).id == table.id


def test_a_view_goes_on_with_its_moment(
    views: Views, writer: CatalogDatabase, warehouse: Warehouse, table: Table, look: Look
) -> None:
    post(writer, warehouse, {"id": 1, "n": 1})
    held = views.current(WIDE, LATEST)
    merge_staged(writer, warehouse, table.id)
    post(writer, warehouse, {"id": 1, "n": 10})
    assert look(views.current(WIDE, LATEST)) == 11
    assert look(held) == 1


def test_withdrawn_altered_rolled_back_and_dropped_are_seen_at_once(
    views: Views, writer: CatalogDatabase, warehouse: Warehouse, table: Table, look: Look
) -> None:
    post(writer, warehouse, {"id": 1, "n": 1})
    merge_staged(writer, warehouse, table.id)
    post(writer, warehouse, {"id": 1, "n": 2})
    merge_staged(writer, warehouse, table.id)
    batch = post(writer, warehouse, {"id": 1, "n": 4})
    assert look(views.current(WIDE, None)) == 7
    withdraw_batch(writer, warehouse, WIDE, batch.id)
    assert look(views.current(WIDE, None)) == 3
    with writer.transaction() as repository:
        repository.snapshots.roll_back(table.id, 1)
    assert look(views.current(WIDE, None)) == 1
    with writer.transaction() as repository:
        repository.tables.alter(table.id, 0, schema(options=SUM | {"lookup.consistency": "merged"}))
    assert views.current(WIDE, None).table.schema_id == 1
    with writer.transaction() as repository:
        repository.tables.drop(*WIDE)
    with pytest.raises(NotFound):
        views.current(WIDE, None)
    again = create_table(writer)
    assert views.current(WIDE, None).table.id == again.id
    with writer.transaction() as repository:
        repository.tables.rename("shop", "wide", "shop", "renamed")
    with pytest.raises(NotFound):
        views.current(WIDE, None)


def test_the_table_says_what_its_lookups_see_and_else_the_service(
    counted: Counted, writer: CatalogDatabase, warehouse: Warehouse, look: Look
) -> None:
    create_table(writer, SUM | {"lookup.consistency": "merged"})
    create_table(writer, SUM, name="other")
    post(writer, warehouse, {"id": 1, "n": 1})
    post(writer, warehouse, {"id": 1, "n": 2}, name="other")
    other = ("shop", "other")
    for default, seen in ((LATEST, 2), (MERGED, None)):
        views = Views(counted, warehouse, default=default)
        assert look(views.current(WIDE, None)) is None
        assert look(views.current(WIDE, LATEST)) == 1
        assert look(views.current(WIDE, None)) is None
        assert look(views.current(other, None)) == seen


def test_beyond_the_memory_the_files_are_read(
    counted: Counted, writer: CatalogDatabase, warehouse: Warehouse, table: Table, look: Look
) -> None:
    small = Views(counted, warehouse, most_bytes=1)
    for number in (1, 10, 100):
        post(writer, warehouse, {"id": 1, "n": number})
    view = small.current(WIDE, None)
    assert [batch.number for batch in view.unread] == [1, 2, 3]
    assert look(view) == 111


def test_a_process_on_another_machine_asks_for_the_last_batch(
    counted: Counted, catalog_url: str, tmp_path: Path, warehouse: Warehouse, table: Table, look: Look
) -> None:
    views = Views(counted, warehouse, shared=False)
    post(counted, warehouse, {"id": 1, "n": 1})
    assert look(views.current(WIDE, None)) == 1
    assert views.recall(WIDE, None) is None
    assert views.recall(WIDE, MERGED) is not None
    assert views.known_table(WIDE) is None
    assert views.current_table(WIDE) == table
    untold = Untold(catalog_url, folder=tmp_path / "elsewhere")
    post(untold, warehouse, {"id": 1, "n": 10})
    assert look(views.current(WIDE, None)) == 11
    untold.close()


class Untold(CatalogDatabase):
    """A process that is killed between its commits and their marks, or is on a machine that this one never hears of."""

    def _mark(self, touched: object) -> None:
        """Nobody is told."""


def test_what_nobody_tells_is_seen_by_the_slow_poll(
    views: Views, catalog_url: str, tmp_path: Path, warehouse: Warehouse, table: Table, look: Look
) -> None:
    untold = Untold(catalog_url, folder=tmp_path)
    batch = post(untold, warehouse, {"id": 1, "n": 1})
    assert look(views.current(WIDE, None)) == 1
    for change in (
        lambda: post(untold, warehouse, {"id": 1, "n": 2}),
        lambda: withdraw_batch(untold, warehouse, WIDE, batch.id),
        lambda: merge_staged(untold, warehouse, table.id),
    ):
        change()
        assert views.recall(WIDE, None) is not None
        views.compare()
        assert views.recall(WIDE, None) is None
        views.current(WIDE, None)
    views.compare()
    assert views.recall(WIDE, None) is not None
    untold.close()


class Hurried(Views):
    """One whose first look just misses what another request is about to read."""

    missed = False

    def recall(self, name: tuple[str, str], wanted: Consistency | None) -> View | None:
        if not self.missed:
            self.missed = True
            return None
        return super().recall(name, wanted)


def test_a_request_that_another_one_overtakes_sees_what_it_asked_for(
    counted: Counted, warehouse: Warehouse, writer: CatalogDatabase, table: Table, look: Look
) -> None:
    """The records of a batch that is merged meanwhile never count twice."""
    views = Hurried(counted, warehouse)
    post(writer, warehouse, {"id": 1, "n": 2})
    assert look(views.current(WIDE, LATEST)) == 2
    merge_staged(writer, warehouse, table.id)
    views.missed = True
    assert look(views.current(WIDE, MERGED)) == 2  # staged batches are not read again for it
    views.missed = False
    assert look(views.current(WIDE, MERGED)) == 2
    post(writer, warehouse, {"id": 1, "n": 3})
    assert look(views.current(WIDE, MERGED)) == 2
    views.missed = False
    assert look(views.current(WIDE, MERGED)) == 2
    assert look(views.current(WIDE, LATEST)) == 5
