"""Two snapshots compared by key are the rows of all lookups before and after, counted one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import Conflict, ErrorCode, NotFound
from app.core.table.history import Table
from app.core.table.options.entries import Integers
from app.files.layout import Warehouse
from app.services.explaining import comparisons
from app.services.explaining.comparisons import Became, Bounds, Compared, Comparison, compare
from app.services.merging.merges import request_merge
from app.services.rows.lookups import Images, find, view_at
from app.services.rows.scans import NDJSON, read_scan, written
from app.services.shared.executor import MergeSite
from app.services.tables.partitions import drop_partitions
from app.services.tables.tables import alter_table
from tests.catalog.builders import CATALOGS
from tests.services.builders import (
    QUIET,
    SUM,
    back_to,
    committed,
    compact,
    create_table,
    merge,
    merge_staged,
    post,
    run_next_merge,
    snapshot_of,
)
from tests.services.executor import BrokenExecutor
from tests.services.rows.test_imaged_lookups import ENGINES, KEYS, drawn

Rows = dict[Any, dict[str, Any]]
NAME = ("shop", "wide")


def of_merge(database: CatalogDatabase, table: Table, merge_id: str) -> Compared:
    with database.reading() as repository:
        return comparisons.of_merge(repository, repository.tables.find(table.id) or table, merge_id)


def of_snapshots(database: CatalogDatabase, table: Table, version: str, since: str | None = None) -> Compared:
    with database.reading() as repository:
        return comparisons.of_snapshots(repository, repository.tables.find(table.id) or table, version, since)


def looked_up(database: CatalogDatabase, images: Images, table: Table, number: int | None) -> Rows:
    """The rows of a snapshot, each looked up by itself."""
    images.asking.builds = False
    with database.reading() as repository:
        view = view_at(repository, repository.tables.find(table.id) or table, str(number))
    found = [find(view, images, (key,), view.columns) for key in KEYS]
    return {one.key: one.row for one in found if one.row is not None}


def rows_at(database: CatalogDatabase, warehouse: Warehouse, table: Table, number: int | None) -> Rows:
    """The rows of a snapshot, by key, of any keys: read by a scan."""
    with database.reading() as repository:
        view = view_at(repository, repository.tables.find(table.id) or table, str(number))
    body = b"".join(written(warehouse, read_scan(view, None, ()), NDJSON))
    rows = [json.loads(line) for line in body.splitlines()]
    return {tuple(row[name] for name in view.table.schema.primary_key): row for row in rows}


def counted(before: Rows, after: Rows) -> dict[str, Any]:
    """What a comparison must say of the rows, and how often each column differs."""
    changed = [key for key in before.keys() & after.keys() if before[key] != after[key]]
    return {
        "added": len(after.keys() - before.keys()),
        "changed": len(changed),
        "removed": len(before.keys() - after.keys()),
        "columns": {
            name: sum(before[key][name] != after[key][name] for key in changed)
            for name in next(iter([*after.values(), *before.values()]), {})
        },
    }


def reported(found: Comparison) -> dict[str, Any]:
    columns = {column.column: column.changed for column in found.columns}
    return {"added": found.added, "changed": found.changed, "removed": found.removed, "columns": columns}


def narrowed(rows: Rows, *names: str) -> Rows:
    return {key: {name: row[name] for name in names} for key, row in rows.items()}


def check(found: Comparison, before: Rows, after: Rows, keys: Sequence[str] = ("id",)) -> None:
    """Numbers and examples are those of the rows."""
    expected = counted(before, after)
    expected["columns"] = {name: n for name, n in expected["columns"].items() if name not in keys}
    if expected["columns"]:
        assert reported(found) == expected
    assert found.exact
    assert found.keys == found.added + found.changed + found.removed + found.unchanged
    assert len(found.sample) == found.added + found.changed + found.removed
    for one in found.sample:
        key = tuple(one.key.values())
        assert (one.before, one.after) == (before.get(key), after.get(key))
        assert one.became is (Became.ADDED if key not in before else Became.CHANGED if key in after else Became.REMOVED)
        differing = [name for name in before.get(key, {}) if before[key][name] != after.get(key, before[key])[name]]
        assert list(one.columns) == differing


@pytest.mark.slow(reason="plays a history of every engine")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_merge_did_what_the_rows_before_and_after_show(site: MergeSite, images: Images, engine: str) -> None:
    table = create_table(site.database, {**ENGINES[engine], **QUIET})
    draw = random.Random(31)
    fates = dict.fromkeys(Became, 0)
    before: Rows = {}
    for turn in range(8):
        posted = [record for _ in range(2) for record in drawn(draw, engine)]
        done = merge(site, table, *posted)
        after = looked_up(site.database, images, table, done.snapshot_id)
        found = compare(site.warehouse, of_merge(site.database, table, done.id), sample=100)
        check(found, before, after)
        assert found.keys == len({record["id"] for record in posted})
        for became in Became:
            fates[became] += sum(sample.became is became for sample in found.sample)
        before = after
        if turn in (2, 5):
            compact(site, table)
            assert committed(site.database, table)
            compacted = compare(site.warehouse, of_snapshots(site.database, table, "LATEST"), sample=100)
            check(compacted, after, after)
            assert compacted.unchanged == compacted.keys > 0
        if turn == 3:
            added = {"action": "addColumn", "fieldNames": ["o"], "dataType": "STRING"}
            alter_table(site.database, NAME, [added])
            before = {key: {**row, "o": None} for key, row in before.items()}
    assert fates[Became.ADDED]
    assert fates[Became.CHANGED] or engine == "first-row"


@pytest.mark.slow(reason="plays a history of every engine")
@pytest.mark.parametrize("engine", ["deduplicate", "removals in order", "aggregation"])
def test_any_two_snapshots_are_compared_whatever_lies_between(site: MergeSite, images: Images, engine: str) -> None:
    table = create_table(site.database, {**ENGINES[engine], **QUIET, "snapshot.num-retained.min": "30"})
    draw = random.Random(5)
    for turn in range(5):
        merge(site, table, *drawn(draw, engine), *drawn(draw, engine))
        if turn == 2:
            compact(site, table)
        if turn == 3:
            back_to(site, table, 3)
    last = snapshot_of(site.database, table)
    every = {number: looked_up(site.database, images, table, number) for number in range(1, last.id + 1)}
    for one, before in every.items():
        for other, after in every.items():
            found = compare(site.warehouse, of_snapshots(site.database, table, str(other), str(one)), sample=100)
            check(found, before, after)
            assert (found.since, found.snapshot_id) == (one, other)


TYPES = {
    "i": ("BIGINT", [None, 0, 2**53 + 1, -1]),
    "f": ("DOUBLE", [None, "NaN", 0.0, 1.5, "Infinity"]),
    "t": ("STRING", [None, "", "a"]),
    "d": ("DECIMAL(6, 2)", [None, "1.50", "0.00"]),
    "w": ("TIMESTAMP(3)", [None, "2024-01-31T10:00:00.001", "1969-01-01T00:00:00"]),
    "b": ("BYTES", [None, "", "YQ=="]),
    "y": ("BOOLEAN", [None, True, False]),
    "a": ("ARRAY<DOUBLE>", [None, [], ["NaN"], [1.0, None]]),
    "m": ("MAP<STRING, INT>", [None, {}, {"a": 1}, {"b": None, "a": 1}]),
    "r": ("ROW<x INT, s STRING>", [None, {"x": 1, "s": "a"}, {"x": None, "s": "a"}]),
}


def test_values_of_every_type_differ_where_lookups_answer_another_one(site: MergeSite) -> None:
    columns = [("id", "DOUBLE"), *((name, kind) for name, (kind, _) in TYPES.items())]
    table = create_table(site.database, QUIET, columns=columns)
    draw = random.Random(3)
    keys = [1.5, 2.0, "NaN", 0.0, "-Infinity", 7.0]
    before: Rows = {}
    differed: set[str] = set()
    for _ in range(6):
        records = [
            {"id": key, **{name: draw.choice(values) for name, (_, values) in TYPES.items()}}
            for key in draw.sample(keys, 4)
        ]
        done = merge(site, table, *records)
        after = rows_at(site.database, site.warehouse, table, done.snapshot_id)
        found = compare(site.warehouse, of_merge(site.database, table, done.id), sample=100)
        check(found, before, after)
        differed |= {column.column for column in found.columns if column.changed}
        of_one = compare(site.warehouse, of_merge(site.database, table, done.id), ["i"], sample=100)
        check(of_one, narrowed(before, "id", "i"), narrowed(after, "id", "i"))
        before = after
    assert differed == TYPES.keys()
    text = compare(site.warehouse, of_merge(site.database, table, done.id), ["i"], 100, Integers.TEXT)
    assert {type((sample.after or {})["i"]) for sample in text.sample} <= {str, type(None)}
    assert all(list(sample.after or {}) == ["id", "i"] for sample in text.sample)


def test_a_column_is_compared_as_the_later_snapshot_shows_it(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, QUIET)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 2})
    changes = [
        {"action": "renameColumn", "fieldNames": ["n"], "newName": "m"},
        {"action": "addColumn", "fieldNames": ["o"], "dataType": "STRING"},
    ]
    alter_table(database, NAME, changes)
    done = merge(site, table, {"id": 1, "m": 1}, {"id": 2, "m": 5, "o": "a"})
    found = compare(site.warehouse, of_merge(database, table, done.id))
    assert (found.added, found.changed, found.removed, found.unchanged) == (0, 1, 0, 1)
    assert {column.column: column.changed for column in found.columns} == {"m": 1, "o": 1}
    assert found.sample[0].before == {"id": 2, "m": 2, "o": None}


def test_many_keys_are_estimated_from_a_share_of_them(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, QUIET)
    merge(site, table, *({"id": key, "n": 0} for key in range(1000)))
    done = merge(site, table, *({"id": key, "n": key % 2} for key in range(500, 1500)))
    compared = of_merge(database, table, done.id)
    whole = compare(site.warehouse, compared, sample=3)
    assert (whole.exact, whole.share, whole.keys) == (True, 1.0, 1000)
    assert (whole.added, whole.changed, whole.removed, whole.unchanged) == (500, 250, 0, 250)
    assert [sample.became for sample in whole.sample] == [Became.ADDED] * 3 + [Became.CHANGED] * 3
    for bounds in (Bounds(keys=400), Bounds(cells=1600)):
        found = compare(site.warehouse, compared, sample=3, bounds=bounds)
        assert (found.exact, round(found.share, 2)) == (False, 0.4 if bounds.keys == 400 else found.share)
        assert 0.1 < found.share < 0.9
        assert abs(found.keys - 1000) < 200
        assert abs(found.changed - 250) < 120
        assert found.keys == found.added + found.changed + found.unchanged


def test_a_drop_of_a_partition_removes_its_rows(database: CatalogDatabase, site: MergeSite) -> None:
    columns = [(name, "INT NOT NULL") for name in ("id", "day", "n")]
    table = create_table(database, QUIET, columns=columns, key=("id", "day"), partitions=("day",))
    first = merge(site, table, *({"id": key, "day": key % 3, "n": key} for key in range(9)))
    assert compare(site.warehouse, of_merge(database, table, first.id)).added == 9
    drop_partitions(database, NAME, [{"day": 1}])
    found = compare(site.warehouse, of_snapshots(database, table, "LATEST"))
    assert (found.removed, found.unchanged) == (3, 0)
    assert {sample.key["id"] for sample in found.sample} == {1, 4, 7}
    back = compare(site.warehouse, of_snapshots(database, table, "1", "LATEST"))
    assert (back.added, back.since, back.snapshot_id) == (3, 2, 1)


def test_a_merge_that_has_not_committed_says_what_to_do(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, QUIET)
    post(database, site.warehouse, {"id": 1, "n": 1})
    waiting = request_merge(database, table.id)
    with pytest.raises(Conflict, match="waits for a worker; repeat the request") as refused:
        of_merge(database, table, waiting.id)
    assert refused.value.code is ErrorCode.MERGE_NOT_COMMITTED
    assert run_next_merge(replace(site, executor=BrokenExecutor(RuntimeError("no luck"))), "worker")
    with pytest.raises(Conflict, match="failed and changed nothing"):
        of_merge(database, table, waiting.id)
    with pytest.raises(NotFound):
        of_merge(database, table, "nosuch")
    withdrawn = request_merge(database, table.id)
    with database.transaction() as repository:
        repository.tasks.request_cancel(table.id, withdrawn.id)
    with pytest.raises(Conflict, match="was cancelled and changed nothing"):
        of_merge(database, table, withdrawn.id)


def test_a_merge_of_nothing_changed_nothing(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, QUIET)
    found = compare(site.warehouse, of_merge(database, table, merge_staged(database, site.warehouse, table.id).id))
    assert (found.keys, found.exact, found.snapshot_id, found.sample) == (0, True, None, [])


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_what_a_merge_did_is_known_as_long_as_its_own_snapshot_is_kept(site: MergeSite) -> None:
    table = create_table(site.database, {**SUM, **QUIET})
    merges = []
    for number in range(4):
        post(site.database, site.warehouse, {"id": 1, "n": 10**number}, {"id": 10 + number, "n": 1})
        merges.append(merge_staged(site.database, site.warehouse, table.id))
    kept = compare(site.warehouse, of_merge(site.database, table, merges[2].id))
    with site.database.transaction() as repository:
        repository.snapshots.expire(table.id, [3, 4])
    again = compare(site.warehouse, of_merge(site.database, table, merges[2].id))
    assert (again, kept.sample[1].before, kept.sample[1].after) == (kept, {"id": 1, "n": 11}, {"id": 1, "n": 111})
    with pytest.raises(NotFound, match="snapshot 2, which the merge committed, does not exist") as gone:
        of_merge(site.database, table, merges[1].id)
    assert gone.value.code is ErrorCode.SNAPSHOT_NOT_FOUND


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_compaction_whose_base_has_expired_needs_since(database: CatalogDatabase, site: MergeSite) -> None:
    table = create_table(database, {**SUM, **QUIET})
    for number in range(2):
        merge(site, table, {"id": number, "n": 1})
    compact(site, table)
    with database.transaction() as repository:
        repository.snapshots.expire(table.id, [1, 3])
    with pytest.raises(NotFound, match="snapshot 2, with which snapshot 3 is compared unless since= names another"):
        of_snapshots(database, table, "3")
    assert compare(site.warehouse, of_snapshots(database, table, "LATEST", "EARLIEST")).added == 1
