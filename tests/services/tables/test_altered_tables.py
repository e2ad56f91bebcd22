"""Tables whose schema changed between merges: old runs are read, combined and compacted with the new ones."""

from __future__ import annotations

import pytest

from app.core.table.history import CatalogTask, Table, TaskState
from app.core.table.options.entries import REMOVED_OPTIONS
from app.core.table.schema import TableSchema
from app.services.rows.lookups import Consistency, Images, get_row
from app.services.shared.executor import MergeSite
from tests.services import builders
from tests.services.builders import SUM, create_table
from tests.services.one_catalog import catalog_kind

__all__ = ["catalog_kind"]


def alter(site: MergeSite, table: Table, *columns: tuple[int, str], options: dict[str, str]) -> None:
    """The table's next schema: a key and BIGINT columns (id, name)."""
    fields = [{"id": number, "name": name, "type": "BIGINT"} for number, name in ((0, "id"), *columns)]
    schema = TableSchema.from_json({"fields": fields, "primaryKeys": ["id"], "options": options})
    with site.database.transaction() as repository:
        now = repository.tables.get("shop", "wide")
        repository.tables.alter(table.id, now.schema_id, schema)


def merge(site: MergeSite, table: Table, **values: int) -> CatalogTask:
    """One record of the key 1, posted and merged."""
    return builders.merge(site, table, {"id": 1, **values})


def row(site: MergeSite, images: Images) -> object:
    with site.database.reading() as repository:
        return get_row(repository, images, repository.tables.get("shop", "wide"), ["1"], Consistency.LATEST).row


@pytest.fixture(params=[50, 2], ids=["runs_stay", "runs_are_compacted"])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    return SUM | {"num-sorted-run.compaction-trigger": str(request.param)}


def test_a_summed_column_that_is_added_later_begins_with_nothing(
    site: MergeSite, images: Images, options: dict[str, str]
) -> None:
    table = create_table(site.database, options)
    merge(site, table, n=1)
    alter(site, table, (1, "n"), (2, "m"), options=options | {"fields.m.aggregate-function": "sum"})
    assert row(site, images) == {"id": 1, "n": 1, "m": None}
    assert merge(site, table, n=1, m=4).state is TaskState.SUCCEEDED
    assert row(site, images) == {"id": 1, "n": 2, "m": 4}


def test_columns_that_change_names_keep_their_values(site: MergeSite, images: Images, options: dict[str, str]) -> None:
    both = options | {"fields.m.aggregate-function": "sum"}
    table = create_table(site.database, options)
    alter(site, table, (1, "n"), (2, "m"), options=both)
    merge(site, table, n=1, m=100)
    alter(site, table, (1, "m"), (2, "n"), options=both)
    assert merge(site, table, n=200, m=2).state is TaskState.SUCCEEDED
    assert row(site, images) == {"id": 1, "m": 3, "n": 300}


@pytest.mark.parametrize("key", REMOVED_OPTIONS)
def test_a_table_of_an_earlier_release_goes_on_without_an_option_that_is_gone(
    site: MergeSite, images: Images, key: str
) -> None:
    table = create_table(site.database, SUM | {key: "refuse"})
    assert merge(site, table, n=1).state is TaskState.SUCCEEDED
    assert merge(site, table, n=2).state is TaskState.SUCCEEDED
    assert row(site, images) == {"id": 1, "n": 3}
