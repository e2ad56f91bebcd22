"""The files of a snapshot are named, with what their readers must know."""

from __future__ import annotations

import pyarrow.parquet as pq

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.services.publishing.files import TableFiles, list_files
from app.services.shared.executor import MergeSite
from app.services.shared.pages import PageRequest
from tests.services.builders import compact, create_table, merge, post, set_options
from tests.services.rows.test_scans import partitioned, scanned, seen


def test_files_say_whether_they_are_the_table(database: CatalogDatabase, site: MergeSite) -> None:
    table = partitioned(database)
    assert listed(database, site, table).complete
    for n in range(2):
        post(database, site.warehouse, *({"id": key, "day": day, "n": n} for key in range(3) for day in "ab"))
        merge(site, table, {"_kind": "-D", "id": 0, "day": "a"})
    several = listed(database, site, table)
    assert not several.complete
    assert "compact" in several.incomplete[0]
    assert len(several.files) == 4
    compact(site, table)
    found = listed(database, site, table)
    assert found.complete
    assert found.live_column == "_kf_live"
    rows = [row for file in found.files for row in pq.ParquetFile(file.uri.removeprefix("file://")).read().to_pylist()]
    assert len(rows) == sum(file.file.rows for file in found.files)
    shown = [
        {name: value for name, value in row.items() if name not in found.hidden} for row in rows if row["_kf_live"]
    ]
    view = seen(database, site.warehouse, table)
    assert sorted(shown, key=str) == sorted(scanned(site.warehouse, view), key=str)
    set_options(database, table, {"merge.max-staleness": "3 d"})
    assert listed(database, site, table).complete
    page = listed(database, site, table, PageRequest(1))
    assert page.next_token is not None
    rest = listed(database, site, table, PageRequest(5, page.next_token))
    assert [*page.files, *rest.files] == list(found.files)


def test_files_are_incomplete_where_a_function_stores_another_value_than_it_shows(site: MergeSite) -> None:
    options = {
        "merge-engine": "aggregation",
        "fields.all.aggregate-function": "bool_and",
        "fields.seen.aggregate-function": "hll_sketch",
    }
    columns = (("id", "BIGINT"), ("all", "BOOLEAN"), ("seen", "BYTES"))
    table = create_table(site.database, options, columns=columns)
    [reason] = listed(site.database, site, table).incomplete
    assert reason == "columns hold the state of their function, not its value: seen"


def listed(
    database: CatalogDatabase,
    site: MergeSite,
    table: Table,
    request: PageRequest = PageRequest(100),  # noqa: B008
) -> TableFiles:
    with database.reading() as repository:
        now = repository.tables.find(table.id) or table
        return list_files(repository, site.warehouse, now, None, request)
