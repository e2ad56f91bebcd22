"""Images of new runs of tables that are looked up are made when the commit is seen, before any lookup asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.services.rows.images_ahead import LOOK_SECONDS, ImagesAhead
from app.services.rows.kept_views import Views
from app.services.rows.lookups import Consistency, Images, imaged_row, row_of
from app.services.rows.views import View
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from tests.catalog.builders import CATALOGS
from tests.services.builders import QUIET, SUM, compact, create_table, merge_staged, post, totals
from tests.services.clocks import Seconds
from tests.services.one_catalog import catalog_kind
from tests.storage.images.imaged import build, files_of

__all__ = ["catalog_kind"]

WIDE = ("shop", "wide")


@pytest.fixture
def clock() -> Seconds:
    return Seconds(1000.0)


@pytest.fixture
def views(database: CatalogDatabase, site: MergeSite) -> Views:
    return Views(database, site.warehouse)


@pytest.fixture
def ahead(database: CatalogDatabase, views: Views, images: Images, clock: Seconds) -> ImagesAhead:
    images.asking.builds = False
    return ImagesAhead(database, views, images, clock)


@pytest.fixture
def table(database: CatalogDatabase) -> Table:
    return create_table(database, {**QUIET})


@pytest.fixture
def merged(database: CatalogDatabase, site: MergeSite) -> Callable[..., None]:
    """One more run of a table, with the row 1."""

    def merge(table: Table, n: int = 1) -> None:
        post(database, site.warehouse, {"id": 1, "n": n}, name=table.name)
        merge_staged(database, site.warehouse, table.id)

    return merge


def seen(views: Views) -> View:
    return views.current(WIDE, Consistency.MERGED)


def named(paths: list[Path]) -> set[str]:
    return {path.parent.name for path in paths}


def test_a_merge_of_a_table_that_is_looked_up_has_its_image_made_without_a_lookup(
    images: Images, views: Views, ahead: ImagesAhead, table: Table, merged: Callable[..., None]
) -> None:
    merged(table)
    first = seen(views)
    ahead.look()
    build(images)
    assert files_of(images) == []  # what there was before is left to lookups
    merged(table, 2)
    ahead.look()
    now = seen(views)
    assert imaged_row(now, images, ["1"]) is None  # it is being made: the row groups answer
    assert row_of(now, images, ["1"]).row == {"id": 1, "n": 2}
    build(images)
    [new] = {run.id for run in now.runs} - {run.id for run in first.runs}
    assert new in named(files_of(images))


@pytest.mark.slow(reason="waits for a builder")
def test_a_builder_makes_them_while_the_process_only_waits(
    database: CatalogDatabase, images: Images, views: Views, table: Table, merged: Callable[..., None]
) -> None:
    ahead = ImagesAhead(database, views, images)
    merged(table)
    seen(views)
    ahead.look()
    ahead.start()
    try:
        merged(table, 2)
        ahead._closed.wait(2 * LOOK_SECONDS)
        assert images.asking.settled(60)
    finally:
        ahead.close()
    assert len(files_of(images)) == 1


def test_a_table_that_nobody_has_lately_asked_for_takes_no_turn(
    images: Images, views: Views, ahead: ImagesAhead, table: Table, merged: Callable[..., None], clock: Seconds
) -> None:
    merged(table)
    ahead.look()
    merged(table, 2)
    ahead.look()
    seen(views)
    ahead.look()
    clock.time += 301
    merged(table, 3)
    ahead.look()
    build(images)
    assert files_of(images) == []


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_while_nothing_changes_the_catalog_is_not_read(
    database: CatalogDatabase, images: Images, table: Table, site: MergeSite, merged: Callable[..., None]
) -> None:
    views = Views(database, site.warehouse)
    merged(table)
    seen(views)
    closed = CatalogDatabase("sqlite:////nowhere/at/all.sqlite", folder=images.folder.parent)
    ahead = ImagesAhead(database, views, images)
    ahead.look()
    ahead._database = Marked(database, closed)
    ahead.look()


class Marked(CatalogDatabase):
    """The marks of one catalog, and another one that cannot be read."""

    def __init__(self, marks: CatalogDatabase, catalog: CatalogDatabase) -> None:
        self.marks = marks.marks
        self.reading = catalog.reading  # type: ignore[method-assign]  # reading it raises


def test_where_rows_are_combined_state_rows_are_made_too(
    database: CatalogDatabase, images: Images, views: Views, ahead: ImagesAhead, merged: Callable[..., None]
) -> None:
    table = create_table(database, {**SUM, **QUIET})
    merged(table)
    seen(views)
    ahead.look()
    merged(table, 2)
    ahead.look()
    build(images)
    assert sorted("states" in path.name for path in files_of(images)) == [False, True]


def test_another_form_is_made_of_what_had_images(
    database: CatalogDatabase,
    images: Images,
    views: Views,
    ahead: ImagesAhead,
    table: Table,
    merged: Callable[..., None],
) -> None:
    merged(table)
    first = seen(views)
    images.want(table.id, first.runs[0], first.table.schema, first.plan)
    build(images)
    merged(table, 2)
    seen(views)
    ahead.look()
    alter_table(database, WIDE, [{"action": "renameColumn", "fieldNames": ["n"], "newName": "m"}])
    ahead.look()
    build(images)
    assert named(files_of(images)) == {first.runs[0].id}
    assert len(files_of(images)) == 2


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_the_image_of_a_run_that_a_compaction_replaced_is_not_made(
    images: Images, site: MergeSite, views: Views, ahead: ImagesAhead, table: Table, merged: Callable[..., None]
) -> None:
    merged(table)
    seen(views)
    ahead.look()
    merged(table, 2)
    ahead.look()  # it asks for the image of the second run
    compact(site, table)
    ahead.look()
    build(images)
    assert named(files_of(images)) == {run.id for run in seen(views).runs}


def test_state_rows_have_images_only_where_they_are_combined(
    database: CatalogDatabase, images: Images, merged: Callable[..., None]
) -> None:
    """A table of one run is answered by its answers alone; until they are made, its Parquet file answers."""
    images.asking.builds = False
    table = create_table(database, {**SUM, **QUIET})
    expected = {1: [False], 2: [False, False, True, True]}
    for runs, made in expected.items():
        merged(table)
        for _ in range(2):
            assert totals(database, images, table, [1]) == [runs]
            build(images)
        assert sorted("states" in path.name for path in files_of(images)) == made
