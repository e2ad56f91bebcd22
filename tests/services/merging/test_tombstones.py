"""Deleted rows that are forgotten after a while, by the clock of the merge site."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.errors import NotFound
from app.core.table.history import Table, TaskState
from app.services.rows.lookups import Consistency, Images, get_row
from app.services.shared.executor import MergeSite
from tests.services import builders
from tests.services.builders import compact, create_table, schema, snapshot_of
from tests.services.one_catalog import catalog_kind

__all__ = ["catalog_kind"]

SEQUENCE = {"sequence.field": "n"}
RETAINED = {"tombstone.time-retained": "1 h"}


def merge(site: MergeSite, table: Table, now: int, *records: dict[str, object]) -> None:
    """``records`` posted, merged at the time ``now``, and compacted with what was there."""
    then = replace(site, clock=lambda: float(now))
    assert builders.merge(then, table, *records).state is TaskState.SUCCEEDED
    if len(snapshot_of(site.database, table).runs) > 1:
        compact(then, table)


def alter(site: MergeSite, table: Table, options: dict[str, str]) -> None:
    with site.database.transaction() as repository:
        repository.tables.alter(table.id, repository.tables.get("shop", "wide").schema_id, schema(options=options))


def fate(site: MergeSite, images: Images, key: int) -> object:
    """The number of a row, or what became of it."""
    with site.database.reading() as repository:
        try:
            row = get_row(repository, images, repository.tables.get("shop", "wide"), [str(key)], Consistency.LATEST).row
        except NotFound as error:
            return "deleted" if error.message.endswith("was deleted") else "never written"
    return (row or {})["n"]


def test_a_row_deleted_long_ago_is_forgotten_and_one_deleted_lately_is_not(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SEQUENCE | RETAINED)
    merge(site, table, 10_000, {"id": 1, "n": 5, "_kind": "-D"})
    merge(site, table, 12_000, {"id": 2, "n": 5, "_kind": "-D"}, {"id": 3, "n": 5})
    assert [fate(site, images, key) for key in (1, 2, 3)] == ["deleted", "deleted", 5]
    merge(site, table, 13_600, {"id": 3, "n": 6})
    assert [fate(site, images, key) for key in (1, 2, 3)] == ["never written", "deleted", 6]
    merge(site, table, 13_601, {"id": 1, "n": 4}, {"id": 2, "n": 4})
    assert [fate(site, images, key) for key in (1, 2, 3)] == [4, "deleted", 6]


@pytest.mark.parametrize("later", [{}, {"tombstone.time-retained": "2 h"}])
def test_the_option_comes_and_goes_and_rows_deleted_before_it_age_from_the_next_compaction(
    site: MergeSite, images: Images, later: dict[str, str]
) -> None:
    table = create_table(site.database, SEQUENCE)
    merge(site, table, 10_000, {"id": 1, "n": 5, "_kind": "-D"}, {"id": 2, "n": 5})
    alter(site, table, SEQUENCE | RETAINED)
    assert [fate(site, images, key) for key in (1, 2)] == ["deleted", 5]
    merge(site, table, 20_000, {"id": 2, "n": 6})
    assert [fate(site, images, key) for key in (1, 2)] == ["deleted", 6]
    alter(site, table, SEQUENCE | later)
    assert [fate(site, images, key) for key in (1, 2)] == ["deleted", 6]
    merge(site, table, 23_600, {"id": 2, "n": 7})
    assert [fate(site, images, key) for key in (1, 2)] == ["deleted", 7]
    alter(site, table, SEQUENCE | RETAINED)
    merge(site, table, 27_200, {"id": 2, "n": 8})
    assert [fate(site, images, key) for key in (1, 2)] == ["deleted" if not later else "never written", 8]
