"""What other engines read of a table that publishes, whatever the format, and when."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.core.table.published import Format
from app.files.layout import delta_log, iceberg_file
from app.services.shared.executor import MergeSite
from app.services.tables.drops import drop_table
from app.services.tables.partitions import drop_partitions
from app.services.tables.tables import alter_table
from app.services.upkeep.forgettings import ask_to_forget
from app.services.upkeep.sweeps import sweep
from tests.catalog.builders import CATALOGS
from tests.services.builders import SUM, compact, create_table, merge
from tests.services.publishing.delta_logs import (
    BOTH,
    ENGINES,
    actions,
    folder_of,
    place_of,
    publish,
    publish_merges,
    read_by_all,
    versions,
)
from tests.services.upkeep.forgetting import forget

PUBLISHED = SUM | BOTH | {"num-sorted-run.compaction-trigger": "99"}
# Late records must meet a delete, which therefore stays in the run.
PUBLISHED_ROWS = {**BOTH, "sequence.field": "n"}
NAME = ("shop", "wide")
DAYS = (("day", "STRING"), ("id", "BIGINT"), ("n", "BIGINT"))


@pytest.fixture
def table(database: CatalogDatabase) -> Table:
    return create_table(database, PUBLISHED)


def republish(site: MergeSite, table: Table) -> int:
    compact(site, table)
    return publish(site.database, site.warehouse)


def test_rows_that_were_deleted_are_hidden_and_filters_go_by_statistics(site: MergeSite) -> None:
    """Row groups are passed over (the tests' runs have 100 rows in each), and places in the file still are places."""
    columns = (("id", "BIGINT"), ("s", "STRING"), ("n", "INT"))
    table = create_table(site.database, PUBLISHED_ROWS, columns=columns)
    merge(site, table, *({"id": number, "s": f"x{number}", "n": None if number == 1 else 5} for number in range(300)))
    merge(site, table, *({"_kind": "-D", "id": number, "n": 6} for number in range(0, 300, 3)))
    republish(site, table)
    left = set(range(300)) - {*range(0, 300, 3)}
    assert {row["id"] for row in read_by_all(site, table)} == left
    [vector] = [action["add"]["deletionVector"] for action in actions(site.warehouse, table, 1) if "add" in action]
    assert vector["cardinality"] == 100
    for where, wanted in {
        "id = 150": [],
        "id = 151": [151],
        "id >= 298": [298, 299],
        "id > 299 OR n < 5": [],
        "s = 'x7'": [7],
        "n IS NULL": [1],
    }.items():
        assert [row["id"] for row in read_by_all(site, table, where)] == wanted, where
    merge(site, table, {"id": 0, "s": "again", "n": 7})
    republish(site, table)
    assert read_by_all(site, table, "id = 0") == [{"id": 0, "s": "again", "n": 7}]


@pytest.mark.parametrize("text", ["𠮷", "😀", "\U0010ffff", 'a"\\\u2028\x85b'])
def test_statistics_hold_each_text_as_it_is(site: MergeSite, text: str) -> None:
    table = create_table(site.database, BOTH, columns=(("id", "BIGINT"), ("s", "STRING")))
    merge(site, table, {"id": 1, "s": text})
    publish(site.database, site.warehouse)
    for where in (f"s = '{text}'", f"s >= '{text}'", "s <> 'x'"):
        assert read_by_all(site, table, where) == [{"id": 1, "s": text}], where


def test_a_filter_finds_nan_where_it_is_the_largest_value(site: MergeSite) -> None:
    """As DuckDB and Spark order numbers; NaN is outside the bounds that Parquet keeps of a column."""
    columns = (("id", "BIGINT"), ("x", "DOUBLE"), ("r", "ROW<y FLOAT>"))
    table = create_table(site.database, BOTH | {"changelog-producer": "lookup"}, columns=columns)
    merge(site, table, *({"id": number, "x": 1.0, "r": {"y": 1.0}} for number in range(3)))
    publish(site.database, site.warehouse)
    merge(site, table, {"id": 0, "x": "NaN", "r": {"y": "NaN"}})
    publish_merges(site.database, site.warehouse)
    check_found_by_duckdb(site, table)
    republish(site, table)
    check_found_by_duckdb(site, table)
    with site.database.transaction() as repository:
        ask_to_forget(repository, repository.tables.existing(table.id), [{"id": 1}], "officer")
    assert forget(site) == 1
    publish(site.database, site.warehouse)
    check_found_by_duckdb(site, table)


def check_found_by_duckdb(site: MergeSite, table: Table) -> None:
    """The row with NaN is in the answer of each filter."""
    for form, readers in ENGINES.items():
        for where in ("x > 5", "x = 'NaN'", "r.y > 5"):
            found = readers["duckdb"](place_of(site, table, form), where)
            assert [row["id"] for row in found] == [0], (form, where)


def test_a_partitioned_table_is_read_and_a_dropped_partition_is_gone_and_so_is_the_last_one(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISHED, columns=DAYS, key=("day", "id"), partitions=("day",))
    days = ["2024-01-01", "a=b%20/c", "ä"]
    merge(site, table, *({"day": day, "id": 1, "n": 1} for day in days))
    merge(site, table, {"day": "ä", "id": 1, "n": 1})
    republish(site, table)
    assert {row["day"]: row["n"] for row in read_by_all(site, table)} == {"a=b%20/c": 1, "ä": 2, "2024-01-01": 1}
    while days:
        drop_partitions(site.database, NAME, [{"day": days.pop()}])
        publish(site.database, site.warehouse)
        assert sorted(row["day"] for row in read_by_all(site, table)) == days


def test_rows_of_a_snapshot_without_rows_are_none(site: MergeSite) -> None:
    table = create_table(site.database, BOTH)
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"_kind": "-D", "id": 1, "n": 1})
    republish(site, table)
    assert read_by_all(site, table) == []


def test_columns_follow_an_alter_at_once_unless_files_must_be_rewritten(site: MergeSite, table: Table) -> None:
    def alter(action: str, column: str, **members: str) -> None:
        alter_table(site.database, NAME, [{"action": action, "fieldNames": [column], **members}])

    merge(site, table, {"id": 1, "n": 4})
    alter("addColumn", "note", dataType="STRING")
    publish(site.database, site.warehouse)
    assert [next(iter(action)) for action in actions(site.warehouse, table, 1)] == ["commitInfo", "metaData"]
    assert read_by_all(site, table) == [{"id": 1, "n": 4, "note": None}]
    merge(site, table, {"id": 1, "n": 4, "note": "a"})
    republish(site, table)
    alter("renameColumn", "note", newName="remark")
    assert publish(site.database, site.warehouse) == 0
    assert read_by_all(site, table) == [{"id": 1, "n": 8, "note": "a"}]
    republish(site, table)
    assert read_by_all(site, table) == [{"id": 1, "n": 8, "remark": "a"}]
    alter("dropColumn", "remark")
    publish(site.database, site.warehouse)
    assert read_by_all(site, table) == [{"id": 1, "n": 8}]
    alter("addColumn", "remark", dataType="INT")
    republish(site, table)
    assert read_by_all(site, table) == [{"id": 1, "n": 8, "remark": None}]


def test_a_widened_column_waits_for_a_compaction(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    republish(site, table)
    change = {"action": "updateColumnType", "fieldNames": ["n"], "newDataType": "DECIMAL(30, 0)"}
    alter_table(site.database, NAME, [change])
    assert publish(site.database, site.warehouse) == 0
    assert read_by_all(site, table) == [{"id": 1, "n": 1}]
    assert republish(site, table) == 2
    assert read_by_all(site, table) == [{"id": 1, "n": 1}]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_rollback_is_the_next_version(site: MergeSite, table: Table) -> None:
    for number in range(2):
        merge(site, table, {"id": 1, "n": number})
        republish(site, table)
    with site.database.transaction() as repository:
        repository.snapshots.roll_back(table.id, 1)
    publish(site.database, site.warehouse)
    for form in Format:
        assert [version.as_of for version in versions(site.database, table, form)] == [1, 2, 4, 5]
    assert read_by_all(site, table) == [{"id": 1, "n": 0}]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_what_was_not_published_when_a_process_died_is_published_by_the_next_in_the_same_bytes(site: MergeSite) -> None:
    """The commit decides the version; whoever comes next writes it, once, and also where the file is there already."""
    table = create_table(site.database, PUBLISHED_ROWS)
    merge(site, table, *({"id": number, "n": 1} for number in range(20)), {"_kind": "-D", "id": 30, "n": 1})
    assert [version.written_at for form in Format for version in versions(site.database, table, form)] == [None] * 2
    publish(site.database, site.warehouse)

    def written() -> dict[Path, bytes]:
        folders = [Path(site.warehouse.path(*of_form(table.id))) for of_form in (delta_log, iceberg_file)]
        return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}

    before = written()
    assert len(before) == 1 + 5  # of Delta the version; metadata, list, two manifests, places of deleted rows
    with site.database.transaction() as repository:
        repository.published.mark_unwritten()  # as if it had died between the files and the catalog
    assert publish(site.database, site.warehouse) == 2
    assert written() == before
    assert all(version.written_at for form in Format for version in versions(site.database, table, form))


def test_what_is_published_goes_with_its_table(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    publish(site.database, site.warehouse)
    path = Path(site.warehouse.path(*delta_log(table.id, f"{0:020}.json")))
    saved = path.read_text()
    drop_table(site.database, site.warehouse, NAME)
    assert not Path(folder_of(site.warehouse, table)).exists()
    path.parent.mkdir(parents=True)
    path.write_text(saved)  # a publisher that slept
    sweep(site.database, site.warehouse, timedelta(0))
    assert not Path(folder_of(site.warehouse, table)).exists()
