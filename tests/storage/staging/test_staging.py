"""Staging files: durable before they are named, readable by anyone who knows Parquet, and indexed as they are read."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.table.keys import Key, token_of
from app.core.table.records import KIND_COLUMN, POSITION_COLUMN, TOKEN_COLUMN, RowKind, arrival
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import DamagedFile
from app.files.arrow import field_id
from app.files.layout import Warehouse, staging_file
from app.storage.staging.staged_index import StagedBatch, StagedIndex, load_batch, load_bounded_batch
from app.storage.staging.staging import delete_batch, read_key_records, sync_staging, write_batch
from tests.services.builders import schema
from tests.storage.staged import batch_in

EVERY_TYPE: list[tuple[str, Any, Any]] = [
    ("BOOLEAN", True, True),
    ("TINYINT", -128, -128),
    ("SMALLINT", 32767, 32767),
    ("INT", -(2**31), -(2**31)),
    ("BIGINT", 2**63 - 1, 2**63 - 1),
    ("FLOAT", 0.5, 0.5),
    ("DOUBLE", 1e300, 1e300),
    ("DECIMAL(38, 2)", "9" * 36 + ".99", Decimal("9" * 36 + ".99")),
    ("CHAR(3)", "abc", "abc"),
    ("STRING", "\0 ü 😀", "\0 ü 😀"),
    ("BYTES", "AP8=", b"\0\xff"),
    ("DATE", "0001-01-01", date(1, 1, 1)),
    ("TIME(3)", "23:59:59.999", 86_399_999),
    ("TIMESTAMP(6)", "9999-12-31T23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-01-31T10:00:00+02:00", datetime(2024, 1, 31, 8, tzinfo=UTC)),
    ("ARRAY<INT>", [1, None], [1, None]),
    ("MAP<STRING, INT>", {"": 1, "b": None}, [("", 1), ("b", None)]),
    ("MULTISET<STRING>", {"a": 2}, [("a", 2)]),
    ("ROW<x INT, y ARRAY<STRING>>", {"x": 1, "y": ["z"]}, {"x": 1, "y": ["z"]}),
]


def decoded(of: TableSchema, *records: dict[str, Any]) -> DecodedRecords:
    return RecordDecoder(compile_plan(of)).decode(records)


def stage(warehouse: Warehouse, of: TableSchema, *records: dict[str, Any], batch: str = "b1") -> Path:
    name, _ = write_batch(warehouse, "t1", batch, of, decoded(of, *records))
    return Path(warehouse.path(*staging_file("t1", name)))


@pytest.mark.parametrize(("kind", "sent", "kept"), EVERY_TYPE, ids=[one[0] for one in EVERY_TYPE])
def test_a_value_of_every_type_is_read_as_it_was_sent(warehouse: Warehouse, kind: str, sent: Any, kept: Any) -> None:
    of = schema(("id", "INT"), ("v", kind))
    file = stage(warehouse, of, {"id": 1, "v": sent}, {"id": 1, "v": None})
    read = list(read_key_records(warehouse, batch_in(warehouse, file.name, 1), of, (1,)))
    assert [record.values for record in read] == [{"id": 1, "v": kept}, {"id": 1, "v": None}]


def test_the_parquet_field_ids_are_the_column_ids(warehouse: Warehouse) -> None:
    fields = [{"id": 7, "name": "id", "type": "INT"}, {"id": 3, "name": "odd name.", "type": "ROW<x INT>"}]
    of = TableSchema.from_json({"fields": fields, "primaryKeys": ["id"]})
    written = pq.read_schema(stage(warehouse, of, {"id": 1}))
    assert [(field.name, field_id(field)) for field in written][1:3] == [("id", 7), ("odd name.", 3)]
    assert written.names == [TOKEN_COLUMN, "id", "odd name.", KIND_COLUMN, POSITION_COLUMN]


def test_the_records_of_a_key_come_in_the_order_they_were_posted(warehouse: Warehouse) -> None:
    of = schema()
    records = [{"id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": 1, "_kind": "-D"}, {"id": 1, "n": None, "_kind": "+U"}]
    file = stage(warehouse, of, *records)
    read = list(read_key_records(warehouse, batch_in(warehouse, file.name, 9), of, (1,)))
    assert [record.kind for record in read] == [RowKind.INSERT, RowKind.DELETE, RowKind.UPDATE_AFTER]
    assert [record.values for record in read] == [{"id": 1, "n": 5}, {"id": 1, "n": None}, {"id": 1, "n": None}]
    assert [record.arrival for record in read] == [arrival(9, 0), arrival(9, 2), arrival(9, 3)]
    assert list(read_key_records(warehouse, batch_in(warehouse, file.name, 9), of, (3,))) == []


def test_dropped_records_leave_the_positions_of_the_others_alone(warehouse: Warehouse) -> None:
    of = schema(options={"ignore-delete": "true"})
    file = stage(warehouse, of, {"id": 1, "_kind": "-D"}, {"id": 1, "n": 2})
    read = read_key_records(warehouse, batch_in(warehouse, file.name), of, (1,))
    assert [one.arrival for one in read] == [arrival(1, 1)]


def test_composite_keys_are_compared_whole(warehouse: Warehouse) -> None:
    of = schema(("a", "STRING"), ("v", "INT"), ("b", "DECIMAL(4, 2)"), key=["b", "a"])
    file = stage(warehouse, of, {"a": "x", "b": "1.5", "v": 1}, {"a": "x", "b": 2, "v": 2}, {"a": "", "b": 2, "v": 3})
    read = read_key_records(warehouse, batch_in(warehouse, file.name, 1), of, (Decimal("2.00"), "x"))
    assert [one.values["v"] for one in read] == [2]


def test_an_empty_batch_is_a_readable_file(warehouse: Warehouse) -> None:
    of = schema()
    assert pq.read_table(stage(warehouse, of)).num_rows == 0


def test_the_size_is_that_of_the_file_and_nothing_else_is_left(warehouse: Warehouse) -> None:
    of = schema()
    name, size = write_batch(warehouse, "t1", "b1", of, decoded(of, {"id": 1}))
    path = Path(warehouse.path(*staging_file("t1", name)))
    assert path.stat().st_size == size
    assert [entry.name for entry in path.parent.iterdir()] == [name]


def test_a_file_is_synced_then_named_then_its_folder_is_synced(warehouse: Warehouse) -> None:
    calls: list[str] = []

    def observe(frame: object, event: str, function: object) -> None:
        if event == "c_call" and function in (os.fsync, os.rename):
            calls.append(getattr(function, "__name__", ""))

    of = schema()
    records = decoded(of, {"id": 1})
    write_batch(warehouse, "t1", "b0", of, records)
    sys.setprofile(observe)
    try:
        write_batch(warehouse, "t1", "b1", of, records)
        sync_staging(warehouse, "t1")
        calls.append("second table")
        write_batch(warehouse, "t2", "b1", of, records)
        sync_staging(warehouse, "t2")
    finally:
        sys.setprofile(None)
    first, _, second = " ".join(calls).partition(" second table ")
    assert first == "fsync rename fsync"
    # The folders of a table that never had a batch are new, and are entries of folders themselves.
    assert second == "fsync fsync fsync rename fsync"


def test_a_deleted_batch_may_be_deleted_again(warehouse: Warehouse) -> None:
    file = stage(warehouse, schema(), {"id": 1})
    delete_batch(warehouse, "t1", file.name)
    assert not file.exists()
    delete_batch(warehouse, "t1", file.name)


def test_batches_can_lie_on_another_file_system() -> None:
    warehouse, of = Warehouse("mock:///bucket"), schema()
    name, size = write_batch(warehouse, "t1", "b1", of, decoded(of, {"id": 1, "n": 4}))
    assert size > 0
    assert [record.values["n"] for record in read_key_records(warehouse, batch_in(warehouse, name, 1), of, (1,))] == [4]
    batch = batch_in(warehouse, name)
    delete_batch(warehouse, "t1", name)
    with pytest.raises(DamagedFile, match=r"t1/staging/b1\.parquet is missing"):
        list(read_key_records(warehouse, batch, of, (1,)))


def test_files_that_were_not_synced_are_synced_by_name_or_all_at_once(warehouse: Warehouse) -> None:
    calls: list[str] = []

    def observe(frame: object, event: str, function: object) -> None:
        if event == "c_call" and (function is os.fsync or getattr(function, "__name__", "") == "syncfs"):
            calls.append("sync")

    of = schema()
    names = [
        write_batch(warehouse, "t1", batch, of, decoded(of, {"id": 1}), sync=False)[0] for batch in ("b1", "b2", "b3")
    ]
    sys.setprofile(observe)
    try:
        sync_staging(warehouse, "t1", names[:1])
        alone = len(calls)
        sync_staging(warehouse, "t1", ["gone.parquet"])
        sync_staging(warehouse, "gone", names)
    finally:
        sys.setprofile(None)
    assert alone == 2  # the file, and its folder
    sync_staging(warehouse, "t1", names)


class CountedKey(int):
    """A key value that counts how often it is compared in Python."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        CountedKey.compared += 1
        return int(self) != other

    def __hash__(self) -> int:
        return int.__hash__(self)


def test_of_a_large_batch_only_the_records_of_the_key_become_objects(warehouse: Warehouse) -> None:
    of = schema()
    records = decoded(of, *({"id": number % 1000, "n": number} for number in range(5000)))
    name, _ = write_batch(warehouse, "t1", "b1", of, records)
    CountedKey.compared = 0
    read = list(read_key_records(warehouse, batch_in(warehouse, name), of, (CountedKey(7),)))
    assert [record.values["n"] for record in read] == [7, 1007, 2007, 3007, 4007]
    assert CountedKey.compared <= 10


@pytest.mark.parametrize(
    ("kind", "values", "key", "found"),
    [
        ("DOUBLE", ["NaN", 1.0, "NaN"], float("nan"), [0, 2]),
        ("DOUBLE", [0.0, -0.0, 1.0], 0.0, [0, 1]),
        ("DECIMAL(5, 2)", ["1.50", "1.5", "1.51"], Decimal("1.50"), [0, 1]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", ["2024-01-31T10:00:00+02:00", "2024-01-31T08:00:00Z"], None, [0, 1]),
        ("BOOLEAN", [True, False], False, [1]),
        ("TIME(3)", ["00:00:01", "00:00:02"], 2000, [1]),
    ],
)
def test_a_key_of_any_type_is_found_in_a_batch(
    warehouse: Warehouse, kind: str, values: list[Any], key: Any, found: list[int]
) -> None:
    of = schema(("id", kind), ("n", "INT"))
    wanted = datetime(2024, 1, 31, 8, tzinfo=UTC) if key is None else key
    file = stage(warehouse, of, *({"id": value, "n": place} for place, value in enumerate(values)))
    read = read_key_records(warehouse, batch_in(warehouse, file.name), of, (wanted,))
    assert [record.values["n"] for record in read] == found


NUMBERS = schema(("id", "BIGINT"), ("n", "BIGINT"))
TEXTS = schema(("id", "STRING"), ("n", "BIGINT"))
COMPOSED = schema(("a", "INT"), ("id", "DOUBLE"), ("n", "BIGINT"), key=("id", "a"))


def load(warehouse: Warehouse, of: TableSchema, number: int, file: str) -> StagedBatch:
    return load_batch(warehouse, batch_in(warehouse, file, number), of)


def test_a_batch_that_takes_more_memory_than_its_file_is_not_decoded_whole(warehouse: Warehouse) -> None:
    of = schema(("id", "BIGINT"), ("note", "STRING"))
    staged = stage(warehouse, of, *({"id": number, "note": "x" * 10_000} for number in range(3000)))
    batch = replace(batch_in(warehouse, staged.name, 1), records=3000)
    assert staged.stat().st_size < 2**20
    assert load_bounded_batch(warehouse, batch, of, 16 * 2**20) is None
    loaded = load_bounded_batch(warehouse, batch, of, 64 * 2**20)
    assert loaded.rows == load_batch(warehouse, batch, of).rows


records = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["+I", "-D", "+U"])), max_size=4)
steps = st.lists(st.one_of(records, st.sets(st.integers(1, 8), max_size=4)), max_size=8)


@pytest.mark.parametrize("of", [NUMBERS, TEXTS, COMPOSED], ids=["numbers", "texts", "composed"])
@given(history=steps)
def test_the_index_is_what_the_files_say(of: TableSchema, history: list[list[tuple[int, str]] | set[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Warehouse(folder)
        index, files, number = StagedIndex(), dict[int, str](), 0
        for step in history:
            if isinstance(step, set):
                index = index.without(step)
                files = {one: file for one, file in files.items() if one not in step}
                continue
            number += 1
            posted = [
                {name: str(key) if of is TEXTS else key for name in of.primary_key} | {"n": place, "_kind": kind}
                for place, (key, kind) in enumerate(step)
            ]
            files[number] = stage(warehouse, of, *posted, batch=f"b{number}").name
            index = index.extended(load(warehouse, of, number, files[number]))
        for value in range(4):
            key: Key = tuple(str(value) if of is TEXTS else value for _ in of.primary_key)
            read = [
                record
                for batch, file in files.items()
                for record in read_key_records(warehouse, batch_in(warehouse, file, batch), of, key)
            ]
            found = sorted((one for _, one in index.records(token_of(of, key), key)), key=lambda one: one.arrival)
            assert found == read
        assert index.batches.keys() == files.keys()


def test_who_holds_an_index_goes_on_with_what_it_was(warehouse: Warehouse) -> None:
    first = stage(warehouse, NUMBERS, {"id": 1, "n": 1}, batch="b1").name
    second = stage(warehouse, NUMBERS, {"id": 1, "n": 2}, batch="b2").name
    held = StagedIndex().extended(load(warehouse, NUMBERS, 1, first))
    later = held.without([1]).extended(load(warehouse, NUMBERS, 2, second))
    token = token_of(NUMBERS, (1,))
    assert [record.values["n"] for _, record in held.records(token, (1,))] == [1]
    assert [record.values["n"] for _, record in later.records(token, (1,))] == [2]


def test_segments_stay_few(warehouse: Warehouse) -> None:
    file = stage(warehouse, NUMBERS, {"id": 1, "n": 1}).name
    index = StagedIndex()
    for number in range(1, 200):
        index = index.extended(load(warehouse, NUMBERS, number, file))
    assert len(index.segments) <= 8
    assert [len(segment) for segment in index.without(range(3, 200)).segments] == [2]
