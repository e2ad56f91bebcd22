"""Records and rows of a table through the Python client, against a real service."""

from __future__ import annotations

import gc
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from keyfold_client import Client, Conflict, Misuse, NotFound, Refused, Table
from keyfold_client.pieces import PIECE_RECORDS
from keyfold_client.values import Schema
from tests.keyfold_client.conftest import MakeTable

EVERY_TYPE = """
  id BIGINT, at TIMESTAMP_LTZ(6), PRIMARY KEY (id, at) NOT ENFORCED,
  b BOOLEAN, f FLOAT, d DOUBLE, de DECIMAL(38, 10), s STRING, raw BYTES, day DATE, hour TIME(3), ts TIMESTAMP(6),
  a ARRAY<DECIMAL(5, 2)>, m MAP<INT, DATE>, k MAP<DATE, DECIMAL(3, 1)>,
  r ROW<x BIGINT, y DECIMAL(4, 1), z TIME(3)>, ms MULTISET<STRING>, times MAP<TIME(0), ARRAY<TIME(3)>>
"""
ROW: dict[str, Any] = {
    "id": 2**62 + 1,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "b": True,
    "f": 0.5,
    "d": 1e300,
    "de": Decimal("1234567890123456789012345678.0123456789"),
    "s": "Zoë\n",
    "raw": b"\x00\xff",
    "day": date(2026, 2, 28),
    "hour": time(23, 59, 59, 999000),
    "ts": datetime(2026, 1, 2, 3, 4, 5, 1),
    "a": [Decimal("1.50"), None],
    "m": {1: date(1, 1, 1)},
    "k": {date(2026, 2, 28): Decimal("1.5")},
    "r": {"x": 2**62 + 3, "y": Decimal("-0.5"), "z": time(10, 0, 0, 1000)},
    "ms": {"a": 2},
    "times": {time(1): [time(2, 0, 0, 3000), None]},
}
KEY = (ROW["id"], ROW["at"])


def test_a_value_of_every_type_comes_back_as_it_was(table: MakeTable) -> None:
    every = table(EVERY_TYPE)
    every.upsert([ROW])
    assert every.get(KEY) == ROW
    assert every.get({"at": ROW["at"], "id": ROW["id"]}) == ROW
    assert every.get_many([KEY, (1, ROW["at"])]) == [ROW, None]
    assert every.merge()["state"] == "succeeded"
    assert every.get(KEY) == ROW
    assert list(every.scan(["id", "de", "at"])) == [{name: ROW[name] for name in ("id", "de", "at")}]


def test_a_scan_in_arrow_is_an_upload(table: MakeTable) -> None:
    every, copy = table(EVERY_TYPE), table(EVERY_TYPE)
    every.upsert([ROW])
    rows = every.scan().to_arrow()
    assert rows.column("hour").to_pylist() == [ROW["hour"]]
    copy.upsert(rows)
    assert copy.get(KEY) == ROW


def test_numbers_that_json_has_not(table: MakeTable) -> None:
    numbers = table("id BIGINT PRIMARY KEY NOT ENFORCED, d DOUBLE, n BIGINT")
    several = table("id DOUBLE PRIMARY KEY NOT ENFORCED, a ARRAY<DOUBLE>")
    several.upsert([{"id": np.float32("-inf"), "a": np.array([0.5, np.nan])}])
    row = several.get(float("-inf"))
    assert row is not None
    assert str(row["a"]) == "[0.5, nan]"
    assert several.get_many([float("-inf")])[0] is not None
    numbers.upsert([{"id": 1, "d": float("inf")}, {"id": 2, "d": np.float64("nan"), "n": np.int64(2**62 + 1)}])
    assert numbers.get(1) == {"id": 1, "d": float("inf"), "n": None}
    found = numbers.get(2)
    assert found is not None
    assert found["d"] != found["d"]
    assert found["n"] == 2**62 + 1


def test_what_is_no_value_of_a_column_is_not_sent(table: MakeTable) -> None:
    one = table()
    for rows in ([{"id": 1, "word": object()}], [7], {"id": 1}, "id", 7):
        with pytest.raises(Misuse):
            one.upsert(rows)
    with pytest.raises(Misuse, match="the table's key is id"):
        one.get_many([(1, 2)])
    with pytest.raises(Misuse):
        one.scan("id")
    assert one.stats()["staged"]["records"] == 0


def test_a_call_with_a_key_counts_once_and_many_records_are_cut(table: MakeTable) -> None:
    sums = table(**{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    rows = [{"id": number % 100, "n": 1} for number in range(PIECE_RECORDS + 500)]
    reported: list[int] = []
    first = sums.upsert(iter(rows), idempotency_key="load-1", progress=reported.append)
    again = sums.upsert(rows, idempotency_key="load-1")
    assert reported == [PIECE_RECORDS, PIECE_RECORDS + 500]
    assert first.records == len(rows)
    assert [batch.replayed for batch in first.batches + again.batches] == [False, False, True, True]
    waited = sums.upsert([{"id": 0, "n": 1000}], wait=60)
    assert waited.merged
    found = sums.get(0)
    assert found is not None
    assert found["n"] == 1000 + (PIECE_RECORDS + 500) // 100
    assert sums.upsert([]).batches == []
    with pytest.raises(Refused) as refused:
        sums.upsert([{"id": 1, "n": 2}], idempotency_key="load-1")
    assert refused.value.status == 422


def test_every_fault_is_reported(table: MakeTable) -> None:
    one = table()
    with pytest.raises(Refused) as refused:
        one.upsert([{"id": 1, "n": "x"}, {"id": 2, "nope": 1}])
    assert [(fault.row, fault.column) for fault in refused.value.faults] == [(0, "n"), (1, "nope")]
    assert all(fault.fix in str(refused.value) for fault in refused.value.faults)
    assert one.get(1) is None


def test_a_fault_has_its_row_in_the_whole_call(table: MakeTable) -> None:
    one = table()
    rows = [{"id": number} for number in range(PIECE_RECORDS + 10)] + [{"id": "x"}]
    with pytest.raises(Refused) as refused:
        one.upsert(rows)
    assert refused.value.stored == PIECE_RECORDS
    assert [fault.row for fault in refused.value.faults] == [len(rows) - 1]
    assert one.get_many([0, PIECE_RECORDS]) == [{"id": 0, "word": None, "n": None}, None]


def test_kinds_and_deletes(table: MakeTable) -> None:
    one = table(**{"sequence.field": "n"})
    one.upsert([{"id": 1, "word": "a", "n": 5}, {"id": 2, "word": "b", "n": 5}, {"id": 2, "n": 6, "_kind": "-D"}])
    assert one.get_many([1, 2]) == [{"id": 1, "word": "a", "n": 5}, None]
    batch = one.delete(1, values={"n": 7})
    assert one.get(1, after=batch.id) is None
    assert one.get(1, columns=["word"]) is None


def test_what_is_not_there(client: Client, table: MakeTable) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        client.table("shop.nothing").get(1)
    with pytest.raises(NotFound):
        table().get(1, as_of=99)
    with pytest.raises(Conflict):
        client.create_database("shop")
    client.create_database("shop", if_not_exists=True)
    assert "shop" in client.databases()
    assert client.tables("shop")
    for name in ("shop", "a.b.c", "", "a.", "`a.b"):
        with pytest.raises(Misuse):
            client.table(name)
    odd = client.table("shop.`a``.b`")
    assert (odd.database, odd.name) == ("shop", "a`.b")


def frames(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same rows as everything that shows itself as Arrow."""
    arrow = pa.Table.from_pylist(rows, pa.schema({"id": pa.int64(), "word": pa.string(), "n": pa.int64()}))
    return {
        "arrow": arrow,
        "batch": arrow.to_batches()[0],
        "reader": arrow.to_reader(),
        "pandas": arrow.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get),
        "pandas, the key its index": arrow.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get).set_index("id"),
        "polars": pl.DataFrame(rows),
    }


@pytest.mark.parametrize("kind", frames([{"id": 1, "word": "a", "n": None}]))
def test_rows_of_every_kind_of_table(table: MakeTable, kind: str) -> None:
    rows = [{"id": 2**62 + 1, "word": "a", "n": None}, {"id": 3, "word": None, "n": 2**62 + 5}]
    one = table()
    assert one.upsert(frames(rows)[kind]).records == 2
    assert one.get_many([2**62 + 1, 3]) == rows


def test_a_scan_in_every_form_loses_no_digit(table: MakeTable) -> None:
    rows = [{"id": 2**62 + number, "word": None if number % 3 else "x", "n": 2**62 + 5} for number in range(5)]
    one = table()
    one.upsert([*rows, {"id": 1, "word": "x", "n": None}])
    scan = one.scan(filter="id.gt.1")
    by_id = sorted(scan, key=lambda row: row["id"])
    assert by_id == rows
    assert sorted(scan.to_arrow().to_pylist(), key=lambda row: row["id"]) == rows
    frame = one.scan(["id", "n"]).to_pandas().set_index("id")
    assert frame.loc[2**62, "n"] == 2**62 + 5
    assert pd.isna(frame.loc[1, "n"])
    assert one.scan().to_polars().sort("id").rows()[1:] == [tuple(row.values()) for row in rows]
    assert pl.DataFrame(scan).height == 5  # an Arrow stream to what takes one
    with pytest.raises(Refused):
        one.scan(["nope"]).to_arrow()


def test_a_column_of_pandas_without_one_type_is_refused_by_name(table: MakeTable) -> None:
    with pytest.raises(Misuse, match="column word"):
        table().upsert(pd.DataFrame({"id": [1, 2], "word": ["a", 3]}))


def test_readers_that_are_given_up_keep_no_one_waiting(client: Client, table: MakeTable) -> None:
    """The collector of garbage may close them at any moment, within a call of the client, too."""
    one = table()
    one.upsert([{"id": number} for number in range(10)])
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(105):  # more than the 100 connections that httpx has at once
            reader = one.scan().reader()
            assert reader.read_next_batch().num_rows
            circle = [reader]
            circle.append(circle)  # only the collector finds it
            del reader, circle
            assert client.tables("shop")
    finally:
        gc.set_threshold(*before)


def test_earlier_rows_are_there_as_of_their_snapshot(table: MakeTable) -> None:
    one = table()
    one.upsert([{"id": 1, "word": "a"}])
    first = one.merge()["snapshotId"]
    one.upsert([{"id": 1, "word": "b"}])
    one.merge()
    before = one.get(1, as_of=first)
    assert before is not None
    assert before["word"] == "a"
    assert [row["word"] for row in one.scan(as_of=first)] == ["a"]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"action": "addColumn", "fieldNames": ["paid"], "dataType": "DECIMAL(6, 2)"}, {"paid": Decimal("1.20")}),
        ({"action": "addColumn", "fieldNames": ["r", "y"], "dataType": "DATE"}, {"r": {"x": 1, "y": date(2026, 1, 2)}}),
        ({"action": "updateColumnType", "fieldNames": ["n"], "newDataType": "DECIMAL(12, 2)"}, {"n": Decimal("1.20")}),
        (
            {"action": "updateColumnType", "fieldNames": ["l"], "newDataType": "DECIMAL(22, 2)"},
            {"l": Decimal("2.00")},
        ),
    ],
)
def test_what_was_altered_since_is_decoded(
    client: Client, table: MakeTable, change: dict[str, Any], value: dict[str, Any]
) -> None:
    one = table("id BIGINT PRIMARY KEY NOT ENFORCED, n INT, l BIGINT, r ROW<x BIGINT>")
    one.upsert([{"id": 1}])
    assert one.get(1) is not None
    client.transport.ask("POST", f"/v1/catalog/databases/shop/tables/{one.name}", json={"changes": [change]})
    one.upsert([{"id": 1, **value}])
    found = one.get(1)
    assert found is not None
    assert found.items() >= value.items()


def test_a_key_that_was_renamed_since_is_read(client: Client, table: MakeTable) -> None:
    one = table()
    one.upsert([{"id": 1, "n": 5}])
    assert one.get_many([1]) == [{"id": 1, "word": None, "n": 5}]
    renamed = [{"action": "renameColumn", "fieldNames": ["id"], "newName": "number"}]
    client.transport.ask("POST", f"/v1/catalog/databases/shop/tables/{one.name}", json={"changes": renamed})
    expected = {"number": 1, "word": None, "n": 5}
    assert one.get_many([1]) == [expected]
    for read in (lambda: one.get({"number": 1}), lambda: one.get_many([{"number": 1}])[0]):
        one._newest = Schema.from_answer({"schema": {"fields": [{"name": "id", "type": "INT"}], "primaryKeys": ["id"]}})
        assert read() == expected
    with pytest.raises(Misuse, match="the table's key is number"):
        one.get({"id": 1})


@pytest.mark.parametrize(
    ("before", "value", "after", "later"),
    [
        ("ARRAY<INT>", [5], "MAP<INT, INT>", {1: 2}),
        ("DATE", date(2026, 1, 2), "STRING", "2026-01-02"),
        ("STRING", "1.50", "DECIMAL(6, 2)", Decimal("1.50")),
    ],
)
def test_a_column_that_was_dropped_and_added_with_another_type_has_the_values_of_each_time(
    client: Client, table: MakeTable, before: str, value: Any, after: str, later: Any
) -> None:
    one = table(f"id BIGINT PRIMARY KEY NOT ENFORCED, c {before}", **{"changelog-producer": "lookup"})
    one.upsert([{"id": 1, "c": value}])
    first = one.merge()["snapshotId"]
    assert one.get(1) == {"id": 1, "c": value}
    changes = [
        {"action": "dropColumn", "fieldNames": ["c"]},
        {"action": "addColumn", "fieldNames": ["c"], "dataType": after},
    ]
    client.transport.ask("POST", f"/v1/catalog/databases/shop/tables/{one.name}", json={"changes": changes})
    one.upsert([{"id": 1, "c": later}])
    last = one.merge()["snapshotId"]
    assert [one.get(1), *one.get_many([1])] == [{"id": 1, "c": later}] * 2
    assert one.get(1, as_of=first) == {"id": 1, "c": value}
    shown = [(change.kind, change.row["c"]) for change in one.changes(since=first, until=last)]
    assert shown == [("+I", value), ("-U", None), ("+U", later)]


def test_a_table_that_was_created_again_is_read_by_its_own_schema(client: Client, table: MakeTable) -> None:
    one = table("id BIGINT PRIMARY KEY NOT ENFORCED, c DATE")
    one.upsert([{"id": 1, "c": date(2026, 1, 2)}])
    assert one.get(1) == {"id": 1, "c": date(2026, 1, 2)}
    one.drop()
    client.create_tables("shop", f"CREATE TABLE {one.name} (id BIGINT PRIMARY KEY NOT ENFORCED, c STRING)")
    one.upsert([{"id": 1, "c": "2026-01-02"}])
    assert one.get(1) == {"id": 1, "c": "2026-01-02"}


def test_what_the_table_says_of_itself(client: Client, table: MakeTable) -> None:
    one = table(**{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    one.upsert([{"id": 1, "n": 2}, {"id": 1, "n": 3}])
    assert "sum" in str(one.rules()["columns"])
    assert one.explain(1, columns=["n"])["row"]["n"] == 5
    ddl = one.ddl()
    one.drop()
    [again] = client.create_tables("shop", ddl)
    assert isinstance(again, Table)
    assert again.details()["schema"]["primaryKeys"] == ["id"]


def test_without_pyarrow_rows_are_read_and_a_scan_says_what_to_install(url: str, table: MakeTable) -> None:
    one = table()
    program = f"""
import sys
sys.modules["pyarrow"] = None
from keyfold_client import Client, Misuse
one = Client({url!r}).table("shop.{one.name}")
one.upsert([{{"id": 1, "n": 2}}])
print(one.get(1))
try:
    one.scan().to_arrow()
except Misuse as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("{'id': 1, 'word': None, 'n': 2}")
    assert "pip install" in done.stdout
