"""Versions of a table whose merges have their changes looked up: one after each merge, without a compaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import app.catalog.snapshots.published_versions as bounds
from app.catalog.database import CatalogDatabase
from app.core.table.history import SnapshotKind, Table, TaskKind, TaskState
from app.core.table.published import Format, PublishedVersion
from app.core.table.records import KIND_COLUMN
from app.files.layout import iceberg_file
from app.services.publishing.publications import COMPACTION_PAUSE, Publisher, keep_versions
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.services.upkeep.sweeps import sweep
from tests.catalog.builders import CATALOGS
from tests.delta_readers import READERS as OF_DELTA
from tests.delta_readers import Rows
from tests.iceberg_readers import READERS as OF_ICEBERG
from tests.services.builders import (
    SUM,
    back_to,
    compact,
    create_table,
    later,
    merge,
    run_next_compaction,
    set_options,
    snapshot_of,
    tasks_of,
)
from tests.services.executor import InterruptedExecutor
from tests.services.publishing import delta_logs
from tests.services.publishing.delta_logs import BOTH, actions, folder_of, metadata, publish, publish_merges

PAUSE_SECONDS = COMPACTION_PAUSE.total_seconds()
FOLLOWED = SUM | {**BOTH, "changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "99"}


@pytest.fixture
def table(database: CatalogDatabase) -> Table:
    return create_table(database, FOLLOWED)


def versions(site: MergeSite, table: Table, form: Format = Format.DELTA) -> list[PublishedVersion]:
    return delta_logs.versions(site.database, table, form)


def shown(site: MergeSite, table: Table) -> list[int]:
    return [version.as_of for version in versions(site, table)]


def read(site: MergeSite, table: Table) -> Rows:
    """What two engines read, which is the same."""
    delta = OF_DELTA["deltalake"](folder_of(site.warehouse, table))
    iceberg = OF_ICEBERG["duckdb"](metadata(site, table), "id IS NOT NULL")
    found = [sorted(rows, key=lambda row: str(row["id"])) for rows in (delta, iceberg)]
    assert found[0] == found[1]
    return found[0]


def publish_merge(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> int:
    """A merge of ``records``, published."""
    merge(site, table, *records)
    return publish_merges(site.database, site.warehouse)


def test_hidden_columns_come_last_in_its_files_and_last_column_id_covers_them(site: MergeSite, table: Table) -> None:
    """Daft reads wrong places of a file where they do not, and ClickHouse refuses larger ids."""
    for n in range(3):
        publish_merge(site, table, {"id": 1, "n": n}, {"id": n + 2, "n": n})
    location = metadata(site, table)
    scanned = [task.file.file_path for task in StaticTable.from_metadata(location).scan().plan_files()]
    schemas = [pq.read_schema(path.removeprefix("file://")) for path in scanned]
    assert {KIND_COLUMN in schema.names for schema in schemas} == {True, False}  # changes and a run
    ids = {int(field.metadata[b"PARQUET:field_id"]) for schema in schemas for field in schema}
    assert max(ids) <= json.loads(Path(location.removeprefix("file://")).read_text())["last-column-id"]
    for schema in schemas:
        hidden = [name.startswith("_kf_") for name in schema.names]
        assert hidden == sorted(hidden)


def test_each_merge_is_published_and_no_run_is_written_for_it(site: MergeSite, database: CatalogDatabase) -> None:
    table = create_table(database, FOLLOWED | {"aggregation.remove-record-on-delete": "true"})
    assert publish_merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 3, "n": 1}) == 2
    assert publish_merge(site, table, {"id": 1, "n": 2}, {"id": 4, "n": 1}) == 2
    assert publish_merge(site, table, {"id": 1, "n": 4}, {"_kind": "-D", "id": 2, "n": None}) == 2
    assert publish_merges(site.database, site.warehouse) == 0  # nothing new
    assert read(site, table) == [{"id": 1, "n": 7}, {"id": 3, "n": 1}, {"id": 4, "n": 1}]
    assert shown(site, table) == [1, 2, 3]
    [base] = {action["add"]["path"] for action in actions(site.warehouse, table, 0) if "add" in action}
    added = [action["add"]["path"] for action in actions(site.warehouse, table, 2) if "add" in action]
    assert [path for path in added if path.startswith("runs/")] == [base]  # the same file, with more rows hidden
    assert tasks_of(site.database, table, TaskKind.COMPACTION) == []


def test_merges_at_once_are_one_version(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    publish(site.database, site.warehouse)
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
        publish(site.database, site.warehouse)
    assert shown(site, table) == [1]
    publish_merges(site.database, site.warehouse)
    assert shown(site, table) == [1, 3]
    assert read(site, table) == [{"id": 1, "n": 3}]


def test_a_version_of_before_the_clock_was_set_back_makes_no_merge_wait(site: MergeSite, table: Table) -> None:
    for _ in range(2):
        merge(site, table, {"id": 1, "n": 1})
        publish(site.database, site.warehouse)
    assert shown(site, table) == [1]
    Publisher(site.database, site.warehouse).follow_merges(later(site.database, hours=-1))
    assert shown(site, table) == [1, 2]


def test_a_compaction_of_some_runs_changes_nothing(site: MergeSite, database: CatalogDatabase) -> None:
    table = create_table(database, FOLLOWED | {"num-sorted-run.compaction-trigger": "3"})
    merge(site, table, *({"id": n, "n": 1} for n in range(1000)))
    for n in range(3):
        publish_merge(site, table, {"id": n, "n": 1})
    assert run_next_compaction(site, "worker")
    assert len(snapshot_of(site.database, table).runs) == 2
    assert publish_merges(site.database, site.warehouse) == 0
    publish_merge(site, table, {"id": 0, "n": 1})
    newest = versions(site, table)[-1]
    assert (newest.base_id, newest.as_of) == (1, 6)
    assert [row["n"] for row in read(site, table) if row["n"] > 1] == [3, 2, 2]


def test_a_compaction_begins_again(site: MergeSite, table: Table) -> None:
    for n in range(3):
        publish_merge(site, table, {"id": n, "n": n})
    compact(site, table)
    assert publish_merges(site.database, site.warehouse) == 2
    newest = versions(site, table)[-1]
    assert (newest.base_id, newest.as_of) == (4, 4)
    publish_merge(site, table, {"id": 0, "n": 5})
    newest = versions(site, table)[-1]
    assert (newest.base_id, newest.as_of) == (4, 5)
    assert read(site, table) == [{"id": 0, "n": 5}, {"id": 1, "n": 1}, {"id": 2, "n": 2}]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_merges_during_a_compaction_are_in_its_version(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 2})

    def meanwhile() -> None:
        publish_merge(site, table, {"id": 1, "n": 100})

    busy = InterruptedExecutor(meanwhile, in_compaction=True)
    compact(MergeSite(site.database, site.warehouse, busy, 600), table)
    publish_merges(site.database, site.warehouse)
    newest = versions(site, table)[-1]
    assert (newest.base_id, newest.as_of, newest.snapshot_id) == (2, 4, 4)
    assert read(site, table) == [{"id": 1, "n": 103}]


def test_a_version_takes_the_merges_of_its_interval_together(site: MergeSite, database: CatalogDatabase) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"}
    table = create_table(database, FOLLOWED | options | {f"{one}.publish.interval": "1 h" for one in Format})
    for n in range(4):
        publish_merge(site, table, {"id": n % 2, "n": 1})
        sweep(database, site.warehouse, timedelta(0))  # what the next version will name stays
    assert shown(site, table) == [1]
    Publisher(database, site.warehouse).follow_merges(later(database, hours=1))
    assert shown(site, table) == [1, 4]
    publish_merges(site.database, site.warehouse)
    assert read(site, table) == [{"id": 0, "n": 2}, {"id": 1, "n": 2}]


def test_a_merge_that_leaves_no_row_changes_nothing(site: MergeSite, database: CatalogDatabase) -> None:
    options = {name: text for name, text in FOLLOWED.items() if name not in SUM}
    table = create_table(database, options | {"ignore-delete": "true"})
    publish_merge(site, table, {"_kind": "-D", "id": 1})
    publish_merge(site, table, {"id": 1, "n": 1})
    publish_merge(site, table, {"_kind": "-D", "id": 1})
    publish_merge(site, table, {"id": 2, "n": 1})
    assert read(site, table) == [{"id": 1, "n": 1}, {"id": 2, "n": 1}]
    assert shown(site, table) == [1, 2]  # the others are no snapshots


def rolled_back(site: MergeSite, table: Table) -> None:
    back_to(site, table, 2)
    merge(site, table, {"id": 9, "n": 1})


def renamed(site: MergeSite, table: Table) -> None:
    change = {"action": "renameColumn", "fieldNames": ["n"], "newName": "m"}
    alter_table(site.database, (table.database, table.name), [change])


def without_lookups(site: MergeSite, table: Table) -> None:
    for value in ("none", "lookup"):
        set_options(site.database, table, {"changelog-producer": value})
        merge(site, table, {"id": 9, "n": 1})


@pytest.mark.parametrize("broken", [rolled_back, renamed, without_lookups])
def test_what_changelogs_do_not_say_waits_for_a_compaction_that_is_requested(
    broken: Any, site: MergeSite, table: Table
) -> None:
    for n in range(3):
        publish_merge(site, table, {"id": n, "n": 1})
    broken(site, table)
    publish_merges(site.database, site.warehouse)
    assert shown(site, table) == [1, 2, 3]
    Publisher(site.database, site.warehouse).follow_merges(later(site.database, seconds=PAUSE_SECONDS))
    assert [task.state for task in tasks_of(site.database, table, TaskKind.COMPACTION)] == [TaskState.PENDING]
    compact(site, table)
    publish_merges(site.database, site.warehouse)
    assert versions(site, table)[-1].base_id > 3
    rows: Mapping[Any, list[Mapping[str, int]]] = {
        rolled_back: [{"id": 0, "n": 1}, {"id": 1, "n": 1}, {"id": 9, "n": 1}],
        renamed: [{"id": 0, "m": 1}, {"id": 1, "m": 1}, {"id": 2, "m": 1}],
        without_lookups: [{"id": 0, "n": 1}, {"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 9, "n": 2}],
    }
    assert read(site, table) == rows[broken]


def test_a_new_column_is_shown_over_the_same_files(site: MergeSite, table: Table) -> None:
    merge(site, table, {"id": 1, "n": 1})
    publish_merge(site, table, {"id": 2, "n": 1})
    change = {"action": "addColumn", "fieldNames": ["t"], "dataType": "STRING"}
    alter_table(site.database, (table.database, table.name), [change])
    publish_merges(site.database, site.warehouse)
    assert read(site, table) == [{"id": 1, "n": 1, "t": None}, {"id": 2, "n": 1, "t": None}]
    assert tasks_of(site.database, table, TaskKind.COMPACTION) == []


@pytest.mark.parametrize("catalog_kind", CATALOGS)
@pytest.mark.parametrize("bound", ["MOST_MERGES", "MOST_CHANGES"])
def test_after_many_changes_a_compaction_is_requested(
    bound: str, site: MergeSite, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, bound, 2)
    for n in range(4):
        publish_merge(site, table, {"id": n, "n": 1})
    assert shown(site, table) == [1, 2, 3]
    Publisher(site.database, site.warehouse).follow_merges(later(site.database, seconds=PAUSE_SECONDS))
    assert [task.state for task in tasks_of(site.database, table, TaskKind.COMPACTION)] == [TaskState.PENDING]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_kept_versions_keep_their_changelogs_and_forgotten_ones_leave_nothing(site: MergeSite) -> None:
    table = create_table(site.database, FOLLOWED | {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"})
    for n in range(4):
        publish_merge(site, table, {"id": 1, "n": 1}, {"id": 5 + n, "n": 1})
    sweep(site.database, site.warehouse, timedelta(0))
    with site.database.reading() as repository:
        kinds = {commit.snapshot_id: commit.kind for commit in repository.commits.every(table.id)}
    assert kinds == dict.fromkeys(range(1, 5), SnapshotKind.MERGE)
    compact(site, table)
    publish_merges(site.database, site.warehouse)
    afterwards = later(site.database, hours=2)
    for form in Format:
        assert keep_versions(site.database, site.warehouse, table.id, form, afterwards) == 4
    sweep(site.database, site.warehouse, timedelta(0))
    for form in Format:
        keep_versions(site.database, site.warehouse, table.id, form, afterwards)
    with site.database.reading() as repository:
        assert [commit.snapshot_id for commit in repository.commits.every(table.id)] == [5]
    root = Path(site.warehouse.path(*iceberg_file(table.id)))
    left = [path.name for path in root.rglob("*") if path.is_file()]
    assert [name for name in left if "changes" in name or "hidden" in name] == []
    assert read(site, table)[0] == {"id": 1, "n": 4}


def test_of_a_file_only_the_places_are_kept_that_a_version_names(site: MergeSite, table: Table) -> None:
    publish_merge(site, table, *({"id": n, "n": 1} for n in range(5)))
    for n in range(4):
        publish_merge(site, table, {"id": n, "n": 1})
    merge(site, table, {"id": 9, "n": 1})  # hides nothing: what is named of the base stays
    publish_merges(site.database, site.warehouse)
    [base] = [run.id for run in snapshot_of(site.database, table).runs if run.rows == 5]
    folder = Path(site.warehouse.path(*iceberg_file(table.id, "runs", base)))

    def numbers() -> list[int]:
        return sorted(int(path.name.split(".")[-2]) for path in folder.glob("*.hidden"))

    assert numbers() == [1, 2, 3, 4]
    [second] = [version for version in versions(site, table, Format.ICEBERG) if version.version == 5]
    assert second.as_of == 6
    keep_versions(site.database, site.warehouse, table.id, Format.ICEBERG, later(site.database, hours=2))
    assert numbers() == [4]
    assert [row["n"] for row in read(site, table)] == [2, 2, 2, 2, 1, 1]


def test_the_places_of_a_partitions_file_are_kept_while_a_version_names_them(site: MergeSite) -> None:
    columns = (("day", "STRING"), ("id", "BIGINT"), ("n", "BIGINT"))
    table = create_table(site.database, FOLLOWED, columns=columns, key=("day", "id"), partitions=("day",))
    for n in (1, 2, 3):
        publish_merge(site, table, *({"day": "mon", "id": number, "n": n} for number in range(2)))
    keep_versions(site.database, site.warehouse, table.id, Format.ICEBERG, later(site.database, hours=2))
    assert [(row["id"], row["n"]) for row in read(site, table)] == [(0, 6), (1, 6)]
