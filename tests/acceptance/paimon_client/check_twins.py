"""Rows of a table that publishes them, read by Paimon's client."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import requests
from conftest import ORDERS, Orders, orders
from pypaimon import Schema
from pypaimon.catalog.rest.rest_catalog import RESTCatalog
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.instant import Instant

PUBLISH = {"twin.publish": "true"}


@pytest.fixture
def published(catalog: RESTCatalog, database: str) -> Orders:
    """A table that publishes its rows."""
    catalog.create_table(f"{database}.orders", orders(**PUBLISH), False)
    return Orders(catalog, database, "orders")


def read(table: Orders, **wanted: Any) -> list[dict[str, Any]]:
    """The rows as Paimon's users read them, by the first column."""
    builder = table.catalog.get_table(table.name).new_read_builder()
    if "columns" in wanted:
        builder = builder.with_projection(wanted["columns"])
    if "where" in wanted:
        builder = builder.with_filter(wanted["where"](builder.new_predicate_builder()))
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return sorted(found, key=lambda row: str(next(iter(row.values()))))


def test_the_rows_of_the_last_full_compaction_are_read(published: Orders) -> None:
    published.post({"id": 1, "name": "a", "amount": 1}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"})
    published.post({"id": 1, "name": "A", "amount": 2}, {"id": 3, "_kind": "-D"})
    published.compact()
    assert read(published) == [{"id": 1, "name": "A", "amount": 2}, {"id": 2, "name": "b", "amount": None}]
    assert read(published, columns=["name"]) == [{"name": "A"}, {"name": "b"}]
    assert read(published, where=lambda that: that.equal("id", 2)) == [{"id": 2, "name": "b", "amount": None}]
    assert read(published, where=lambda that: that.greater_than("amount", 5)) == []


def test_rows_that_were_merged_later_come_with_the_next_full_compaction(published: Orders) -> None:
    published.post({"id": 1, "name": "a"})
    published.compact()
    held = published.catalog.get_table(published.name).new_read_builder()
    published.post({"id": 1, "name": "b"})
    assert read(published) == [{"id": 1, "name": "a", "amount": None}]
    published.compact()
    assert read(published) == [{"id": 1, "name": "b", "amount": None}]
    assert held.new_read().to_arrow(held.new_scan().plan().splits()).to_pylist()[0]["name"] == "b"


def test_before_the_first_full_compaction_a_reader_is_told_what_to_do(published: Orders) -> None:
    for _ in range(2):
        with pytest.raises(NotImplementedError, match=r"POST .*/orders/compact"):
            read(published)
        published.post({"id": 1, "name": "a"})


def test_a_table_whose_rows_are_all_deleted_is_read_as_empty(published: Orders) -> None:
    published.post({"id": 1, "name": "a"})
    published.post({"id": 1, "_kind": "-D"})
    published.compact()
    assert read(published) == []


def test_other_columns_are_read_once_the_table_is_compacted_again(published: Orders) -> None:
    catalog = published.catalog
    published.post({"id": 1, "name": "a", "amount": 5})
    published.compact()
    catalog.alter_table(published.name, [SchemaChange.set_option("snapshot.num-retained.max", "20")])
    assert read(published) == [{"id": 1, "name": "a", "amount": 5}]
    catalog.alter_table(
        published.name, [SchemaChange.rename_column("name", "title"), SchemaChange.drop_column("amount")]
    )
    with pytest.raises(NotImplementedError, match=r"POST .*/orders/compact"):
        read(published)
    published.compact()
    assert read(published) == [{"id": 1, "title": "a"}]


def test_rows_that_a_rollback_took_away_are_not_read(published: Orders) -> None:
    published.post({"id": 1, "name": "a"})
    first = requests.get(f"{published.url}/snapshot", timeout=60).json()["snapshot"]["snapshot"]["id"]
    published.post({"id": 1, "name": "b"})
    published.compact()
    published.catalog.rollback_to(published.name, Instant.snapshot(first))
    with pytest.raises(NotImplementedError, match=r"POST .*/orders/compact"):
        read(published)
    published.compact()
    assert read(published) == [{"id": 1, "name": "a", "amount": None}]


def test_who_writes_is_stopped_before_there_is_a_file(published: Orders) -> None:
    published.post({"id": 1, "name": "a"})
    published.compact()
    before = published.files()
    builder = published.catalog.get_table(published.name).new_batch_write_builder()
    write = builder.new_write()
    write.write_arrow(pa.Table.from_pylist([{"id": 9, "name": "x", "amount": 1}], schema=ORDERS))
    with pytest.raises(Exception, match="write with POST …/batches"):
        write.prepare_commit()
    assert published.files() == before
    assert read(published) == [{"id": 1, "name": "a", "amount": None}]


def test_who_truncates_is_refused_and_changes_nothing(published: Orders) -> None:
    published.post({"id": 1, "name": "a"})
    published.compact()
    before = published.files()
    with pytest.raises(Exception, match="write with POST …/batches"):
        published.catalog.get_table(published.name).new_batch_write_builder().new_commit().truncate_table()
    assert published.files() == before
    assert read(published) == [{"id": 1, "name": "a", "amount": None}]


def test_every_type_and_every_partition_is_read_as_it_is(catalog: RESTCatalog, database: str) -> None:
    every = {
        "day": pa.string(),
        "id": pa.int64(),
        "flag": pa.bool_(),
        "tiny": pa.int8(),
        "small": pa.int16(),
        "real": pa.float32(),
        "number": pa.float64(),
        "price": pa.decimal128(12, 2),
        "bytes": pa.binary(),
        "at": pa.timestamp("us"),
        "instant": pa.timestamp("us", tz="UTC"),
        "born": pa.date32(),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int64()),
        "inside": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    }
    schema = Schema.from_pyarrow_schema(
        pa.schema(list(every.items())), ["day"], ["day", "id"], PUBLISH | {"merge-engine": "partial-update"}
    )
    catalog.create_table(f"{database}.wide", schema, False)
    table = Orders(catalog, database, "wide")
    record = {"flag": True, "tiny": 1, "small": -2, "real": 0.5, "number": 1e300, "price": "12.50", "bytes": "AQI="}
    times = {"at": "2026-01-02T03:04:05.000006", "instant": "2026-01-02T03:04:05Z", "born": "2026-01-02"}
    inside = {"tags": ["x", None], "counts": {"a": 1}, "inside": {"a": 1, "b": "y"}}
    table.post({"day": "1", "id": 1, **record}, {"day": "2", "id": 1, **times, **inside})
    table.post({"day": "1", "id": 1, **times, **inside}, {"day": "2", "id": 1, **record})
    table.compact()
    first, second = read(table)
    assert {**first, "day": "2"} == second
    assert (str(first["price"]), first["bytes"], str(first["born"])) == ("12.50", b"\x01\x02", "2026-01-02")
    assert (first["at"].isoformat(), first["instant"].isoformat()) == (
        "2026-01-02T03:04:05.000006",
        "2026-01-02T03:04:05+00:00",
    )
    assert (first["tags"], dict(first["counts"]), first["inside"]) == (["x", None], {"a": 1}, {"a": 1, "b": "y"})
    scanned = requests.get(f"{table.url}/rows:scan", timeout=60).text.splitlines()
    assert len(scanned) == 2


def test_the_table_is_shown_without_a_key_to_paimons_clients_alone(published: Orders) -> None:
    published.post({"id": 1, "name": "a"})
    published.compact()
    shown = published.catalog.get_table(published.name)
    assert (shown.primary_keys, shown.is_primary_key_table) == ([], False)
    assert requests.get(published.url, timeout=60).json()["schema"]["primaryKeys"] == ["id"]
    loaded = published.catalog.load_snapshot(published.name)
    assert loaded.snapshot.commit_kind == "COMPACT"
