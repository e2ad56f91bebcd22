"""Tables by Paimon's client."""

from __future__ import annotations

import pyarrow as pa
import pytest
from conftest import ORDERS, Orders, orders
from pypaimon import Schema
from pypaimon.api.rest_exception import BadRequestException, NoSuchResourceException
from pypaimon.catalog.catalog_exception import (
    DatabaseNotExistException,
    TableAlreadyExistException,
    TableNotExistException,
)
from pypaimon.catalog.rest.rest_catalog import RESTCatalog
from pypaimon.common.identifier import Identifier
from pypaimon.schema.data_types import PyarrowFieldParser

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("real", pa.float32()),
        ("number", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("bytes", pa.binary()),
        ("at", pa.timestamp("us")),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("inside", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)


def test_a_table_is_shown_as_it_was_created(catalog: RESTCatalog, database: str) -> None:
    schema = Schema.from_pyarrow_schema(
        EVERY_TYPE,
        partition_keys=["day"],
        primary_keys=["day", "id"],
        options={"bucket": "2", "merge-engine": "partial-update"},
        comment="every type",
    )
    catalog.create_table(f"{database}.wide", schema, False)
    shown = catalog.get_table(f"{database}.wide").table_schema
    assert PyarrowFieldParser.from_paimon_schema(shown.fields) == EVERY_TYPE
    assert (shown.partition_keys, shown.primary_keys, shown.comment) == (["day"], ["day", "id"], "every type")
    assert shown.options["merge-engine"] == "partial-update"


def test_a_table_is_made_of_the_options_that_another_one_shows(catalog: RESTCatalog, table: Orders) -> None:
    options = dict(catalog.get_table(table.name).table_schema.options)
    del options["path"]
    schema = Schema.from_pyarrow_schema(ORDERS, primary_keys=["id"], options=options)
    catalog.create_table(f"{table.database}.copy", schema, False)
    assert catalog.get_table(f"{table.database}.copy").table_schema.options["bucket"] == "1"


def test_tables_that_exist_are_reported_or_passed_over(catalog: RESTCatalog, table: Orders) -> None:
    with pytest.raises(TableAlreadyExistException):
        catalog.create_table(table.name, orders(), ignore_if_exists=False)
    catalog.create_table(table.name, orders(), ignore_if_exists=True)


def test_tables_that_do_not_exist_are_reported_or_passed_over(catalog: RESTCatalog, database: str) -> None:
    missing = f"{database}.nope"
    for asked in (catalog.get_table, catalog.drop_table, catalog.load_snapshot, catalog.list_partitions_paged):
        with pytest.raises(TableNotExistException):
            asked(missing)
    with pytest.raises(TableNotExistException):
        catalog.rename_table(missing, f"{database}.other")
    catalog.drop_table(missing, ignore_if_not_exists=True)
    with pytest.raises(NoSuchResourceException, match="nowhere"):
        catalog.create_table("nowhere.orders", orders(), False)
    with pytest.raises(DatabaseNotExistException):
        catalog.list_tables("nowhere")


def test_a_table_that_is_wrong_is_refused_with_what_to_do(catalog: RESTCatalog, database: str) -> None:
    with pytest.raises(BadRequestException, match="merge-engin"):
        catalog.create_table(f"{database}.wrong", orders(**{"merge-engin": "partial-update"}), False)
    with pytest.raises(BadRequestException, match="primary key"):
        catalog.create_table(f"{database}.wrong", Schema.from_pyarrow_schema(ORDERS), False)
    with pytest.raises(BadRequestException, match="%s"):  # a text that formats other texts
        catalog.create_table(f"{database}.wrong", orders(**{"merge-engine": "%s %d"}), False)
    assert catalog.list_tables(database) == []


def test_a_table_is_renamed_with_its_rows(catalog: RESTCatalog, table: Orders) -> None:
    catalog.create_table(f"{table.database}.taken", orders(), False)
    with pytest.raises(TableAlreadyExistException):
        catalog.rename_table(table.name, f"{table.database}.taken")
    catalog.rename_table(table.name, Identifier.create(table.database, "with space+plus"))
    assert sorted(catalog.list_tables(table.database)) == ["taken", "with space+plus"]
    assert catalog.get_table(Identifier.create(table.database, "with space+plus")).field_names == ORDERS.names


def test_a_dropped_table_is_gone(catalog: RESTCatalog, table: Orders) -> None:
    catalog.drop_table(table.name)
    assert catalog.list_tables(table.database) == []
    with pytest.raises(TableNotExistException):
        catalog.drop_table(table.name)


def test_many_tables_are_listed_whole_by_page_and_by_pattern(catalog: RESTCatalog, database: str) -> None:
    names = [f"t{number:03}" for number in range(130)]
    for name in names:
        catalog.create_table(f"{database}.{name}", orders(), False)
    assert catalog.list_tables(database) == names
    page = catalog.list_tables_paged(database, max_results=50, table_name_pattern="t0%")
    rest = catalog.list_tables_paged(database, 50, page.next_page_token, "t0%")
    assert (page.elements + rest.elements, rest.next_page_token) == (names[:100], None)
    assert catalog.list_tables_paged(database, table_type="table").elements == names[:100]
    assert catalog.list_tables_paged(database, table_type="view").elements == []
    catalog.drop_database(database, cascade=True)
    assert database not in catalog.list_databases()
