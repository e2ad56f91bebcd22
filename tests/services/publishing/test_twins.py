"""What Paimon's clients read of a table that publishes its rows: written by full compactions, kept, and removed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from app.core.table.history import SnapshotKind, Table
from app.services.merging.compactions import run_next_compaction
from app.services.publishing.twins import Published, published
from app.services.shared.executor import MergeSite
from app.services.snapshots.snapshots import roll_back
from app.services.tables.partitions import drop_partitions
from app.services.tables.tables import alter_table
from app.services.upkeep.sweeps import sweep
from app.storage.paimon.twins import begun_twins, keep_twins
from tests.services.builders import SUM, compact, create_table, merge_staged, post, schema, snapshot_of
from tests.services.executor import InterruptedExecutor

PUBLISH = SUM | {"twin.publish": "true"}
REMOVES = {"partial-update.remove-record-on-delete": "true"}
FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
WIDE = ("shop", "wide")


def twin_of(site: MergeSite, table: Table) -> Published | None:
    """What the table publishes now."""
    with site.database.reading() as repository:
        now = repository.tables.find(table.id)
        return published(repository, site.warehouse, now) if now else None


def rows(site: MergeSite, table: Table) -> list[Mapping[str, Any]]:
    """The rows that Paimon's clients find, from the manifest list on."""
    found = twin_of(site, table)
    assert found is not None
    folder = Path(site.warehouse.path(table.id, "twin"))
    assert _records(folder / "manifest" / found.twin.empty_list_name) == []
    entries = [
        entry
        for listed in _records(folder / "manifest" / found.twin.list_name)
        for entry in _records(folder / "manifest" / listed["_FILE_NAME"])
    ]
    files = [folder / "bucket-0" / entry["_FILE"]["_FILE_NAME"] for entry in entries]
    read = [pq.ParquetFile(file).read().to_pylist() for file in files]
    assert [entry["_FILE"]["_ROW_COUNT"] for entry in entries] == [*map(len, read)]
    assert [entry["_FILE"]["_FILE_SIZE"] for entry in entries] == [file.stat().st_size for file in files]
    return sorted((row for part in read for row in part), key=lambda row: row["id"])


def _records(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def fold(site: MergeSite, table: Table, *records: Mapping[str, Any]) -> None:
    """Posts records and merges them."""
    post(site.database, site.warehouse, *records)
    merge_staged(site.database, site.warehouse, table.id)


def number(site: MergeSite, table: Table) -> int:
    """The table's current snapshot."""
    snapshot = snapshot_of(site.database, table)
    assert snapshot is not None
    return snapshot.id


def files(site: MergeSite, table: Table) -> set[str]:
    """The names of all files of the table's twins."""
    return {path.name for path in Path(site.warehouse.path(table.id, "twin")).rglob("*") if path.is_file()}


def set_option(site: MergeSite, key: str, value: str) -> None:
    alter_table(site.database, WIDE, [{"action": "setOption", "key": key, "value": value}])


def test_a_full_compaction_publishes_the_rows_that_are_shown(site: MergeSite) -> None:
    table = create_table(site.database, {"twin.publish": "true", "merge-engine": "partial-update", **REMOVES})
    fold(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 5})
    assert twin_of(site, table) is None
    fold(site, table, {"id": 1, "n": 2}, {"id": 2, "_kind": "-D"}, {"id": 3})
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 2}, {"id": 3, "n": None}]
    fold(site, table, {"id": 1, "n": 3})
    assert rows(site, table)[0] == {"id": 1, "n": 2}
    compact(site, table)
    assert rows(site, table)[0] == {"id": 1, "n": 3}


def test_what_is_merged_while_a_table_is_compacted_is_in_its_twin_as_it_is_in_its_snapshot(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    fold(site, table, {"id": 1, "n": 1})
    busy = InterruptedExecutor(lambda: fold(site, table, {"id": 1, "n": 5}), in_compaction=True)
    compact(MergeSite(site.database, site.warehouse, busy, 600), table)
    snapshot = snapshot_of(site.database, table)
    assert snapshot is not None
    assert len(snapshot.runs) == 2
    found = twin_of(site, table)
    assert found is not None
    assert (found.snapshot, rows(site, table)) == (snapshot, [{"id": 1, "n": 7}])


def test_a_compaction_of_some_runs_publishes_nothing(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH | {"num-sorted-run.compaction-trigger": "3"})
    fold(site, table, *({"id": number, "n": 1} for number in range(900)))
    for _ in range(3):
        fold(site, table, {"id": 1, "n": 1})
    assert run_next_compaction(site, "compactor")
    snapshot = snapshot_of(site.database, table)
    assert snapshot is not None
    assert (snapshot.kind, len(snapshot.runs) > 1, twin_of(site, table)) == (SnapshotKind.COMPACTION, True, None)


def test_a_total_outside_its_type_and_a_default_are_published_as_they_are_shown(site: MergeSite) -> None:
    options = PUBLISH | {"fields.n.aggregate-function": "sum"}
    table = create_table(site.database, options)
    fold(site, table, {"id": 1, "n": 2**63 - 1}, {"id": 2})
    fold(site, table, {"id": 1, "n": 10})
    fold(site, table, {"id": 1, "n": -20})
    set_option(site, "fields.n.default-value", "7")
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 2**63 - 11}, {"id": 2, "n": 7}]


def test_a_table_that_publishes_nothing_has_no_twin(site: MergeSite) -> None:
    table = create_table(site.database)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    assert (twin_of(site, table), files(site, table)) == (None, set())


def test_a_table_that_is_compact_already_is_published_when_that_is_asked(site: MergeSite) -> None:
    table = create_table(site.database)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    set_option(site, "twin.publish", "true")
    assert twin_of(site, table) is None
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 1}]
    set_option(site, "twin.publish", "false")
    assert twin_of(site, table) is None


@pytest.mark.parametrize("compacted", [False, True])
def test_behind_a_rollback_the_rows_before_it_are_published_no_more(site: MergeSite, compacted: bool) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    if compacted:
        compact(site, table)
    first = number(site, table)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    with site.database.transaction() as repository:
        roll_back(repository, repository.tables.get(*WIDE), number=first)
    assert twin_of(site, table) is None
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 1}]


def test_rows_of_a_dropped_partition_are_published_no_more(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    with site.database.transaction() as repository:
        columns = ("id", "BIGINT"), ("n", "BIGINT")
        parted = schema(*columns, key=("id",), options=PUBLISH).to_json() | {"partitionKeys": ["id"]}
        table = repository.tables.create("shop", "parted", type(table.schema).from_json(parted))
    post(site.database, site.warehouse, {"id": 1, "n": 1}, {"id": 2, "n": 2}, name="parted")
    merge_staged(site.database, site.warehouse, table.id)
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
    drop_partitions(site.database, ("shop", "parted"), [{"id": 1}])
    assert twin_of(site, table) is None
    compact(site, table)
    assert rows(site, table) == [{"id": 2, "n": 2}]


def test_other_columns_are_published_by_the_next_compaction(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    alter_table(site.database, WIDE, [{"action": "renameColumn", "fieldNames": ["n"], "newName": "m"}])
    assert twin_of(site, table) is None
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "m": 1}]


def test_what_is_read_stays_however_many_snapshots_come_and_what_was_read_goes_with_its_own(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH | FEW)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    first = files(site, table)
    for _ in range(3):
        fold(site, table, {"id": 1, "n": 1})
        sweep(site.database, site.warehouse)
    assert rows(site, table) == [{"id": 1, "n": 1}]
    compact(site, table)
    assert first < files(site, table)  # readers of the one before are not cut off
    sweep(site.database, site.warehouse)
    sweep(site.database, site.warehouse)
    assert rows(site, table) == [{"id": 1, "n": 4}]
    assert not {name for name in first if not name.startswith("schema-")} & files(site, table)


def test_a_sweep_removes_what_a_killed_worker_or_a_client_left(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    folder = Path(site.warehouse.path(table.id, "twin", "bucket-0"))
    young, old = folder / "_writing-young", folder.parent / "tag" / "tag-of-a-client"
    old.parent.mkdir()
    for path in (young, old):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    assert sweep(site.database, site.warehouse, timedelta(hours=1)) >= 1
    assert (young.exists(), old.exists()) == (True, False)
    assert rows(site, table) == [{"id": 1, "n": 1}]


def test_a_sweep_leaves_a_twin_that_is_begun_while_it_looks(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    seen = begun_twins(site.warehouse, table.id)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    long_ago = datetime.now(UTC) - timedelta(days=1)
    assert keep_twins(site.warehouse, table.id, (), seen, long_ago) > 0
    assert rows(site, table) == [{"id": 1, "n": 2}]


def test_a_twin_that_cannot_be_written_fails_no_compaction(site: MergeSite, caplog: pytest.LogCaptureFixture) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    in_the_way = Path(site.warehouse.path(table.id, "twin", "bucket-0"))
    in_the_way.parent.mkdir()
    in_the_way.write_text("no folder")
    compact(site, table)
    assert "the twin of table shop.wide at snapshot 2 is not written" in caplog.text
    assert twin_of(site, table) is None
    in_the_way.unlink()
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 1}]


def test_a_twin_that_lacks_its_list_is_none(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    found = twin_of(site, table)
    assert found is not None
    Path(site.warehouse.path(table.id, "twin", "manifest", found.twin.list_name)).unlink()
    assert twin_of(site, table) is None
    compact(site, table)
    assert rows(site, table) == [{"id": 1, "n": 1}]


def test_its_times_are_those_of_its_snapshot(site: MergeSite) -> None:
    table = create_table(site.database, PUBLISH)
    fold(site, table, {"id": 1, "n": 1})
    compact(site, table)
    found = twin_of(site, table)
    assert found is not None
    folder = Path(site.warehouse.path(table.id, "twin", "manifest"))
    [entry] = _records(folder / found.twin.manifest_name)
    created: datetime = entry["_FILE"]["_CREATION_TIME"]
    assert abs(created - found.snapshot.committed_at) < timedelta(milliseconds=1)
