"""What Keyfold does not do: each time an error at once that says what to do instead, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from conftest import ORDERS, Orders
from pypaimon import Schema
from pypaimon.api.rest_exception import NotImplementedException
from pypaimon.catalog.rest.rest_catalog import RESTCatalog
from pypaimon.common.identifier import Identifier
from pypaimon.function.function import FunctionImpl
from pypaimon.snapshot.snapshot import Snapshot

ROWS = pa.Table.from_pylist([{"id": 1, "name": "a", "amount": 2}], schema=ORDERS)


def _snapshot() -> Snapshot:
    return Snapshot(
        version=3,
        id=1,
        schema_id=0,
        base_manifest_list="",
        delta_manifest_list="",
        total_record_count=0,
        delta_record_count=0,
        commit_user="x",
        commit_identifier=1,
        commit_kind="APPEND",
        time_millis=0,
    )


REFUSED: dict[str, Callable[[RESTCatalog, Identifier], Any]] = {
    "create_partitions": lambda catalog, table: catalog.create_partitions(table, [{"day": "x"}]),
    "create_branch": lambda catalog, table: catalog.create_branch(table, "b"),
    "drop_branch": lambda catalog, table: catalog.drop_branch(table, "b"),
    "rename_branch": lambda catalog, table: catalog.rename_branch(table, "b", "c"),
    "fast_forward": lambda catalog, table: catalog.fast_forward(table, "b"),
    "list_branches": lambda catalog, table: catalog.list_branches(table),
    "list_functions": lambda catalog, table: catalog.list_functions(table.get_database_name()),
    "list_functions_paged": lambda catalog, table: catalog.list_functions_paged(table.get_database_name(), 5),
    "list_function_details": lambda catalog, table: catalog.list_function_details_paged(table.get_database_name(), 5),
    "list_functions_globally": lambda catalog, _: catalog.list_functions_paged_globally("%", "%", 5),
    "get_function": lambda catalog, table: catalog.get_function(table),
    "create_function": lambda catalog, table: catalog.create_function(table, FunctionImpl(table)),
    "drop_function": lambda catalog, table: catalog.drop_function(table),
    "alter_function": lambda catalog, table: catalog.alter_function(table, []),
    "load_table_token": lambda catalog, table: catalog.rest_api.load_table_token(table),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_is_reported_as_such(catalog: RESTCatalog, table: Orders, name: str) -> None:
    asked = Identifier.create(table.database, "orders")
    with pytest.raises(NotImplementedException, match="/batches") as refused:
        REFUSED[name](catalog, asked)
    assert "does not exist" not in str(refused.value)


def test_a_commit_is_refused_and_says_how_to_write(catalog: RESTCatalog, table: Orders) -> None:
    name = Identifier.create(table.database, "orders")
    with pytest.raises(RuntimeError, match=rf"POST /v1/catalog/databases/{table.database}/tables/orders/batches"):
        catalog.commit_snapshot(name, None, None, _snapshot(), [])


def _written(table: Orders) -> Any:
    builder = table.catalog.get_table(table.name).new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    try:
        write.write_arrow(ROWS)
        commit.commit(write.prepare_commit())
    finally:
        write.close()
        commit.close()


def _read(table: Orders) -> Any:
    builder = table.catalog.get_table(table.name).new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


ON_FILES: dict[str, Callable[[Orders], Any]] = {
    "read": _read,
    "write": _written,
    "create_tag": lambda table: table.catalog.get_table(table.name).create_tag("v", 1),
    "snapshots": lambda table: (
        (builder := table.catalog.get_table(f"{table.name}$snapshots").new_read_builder())
        and builder.new_read().to_arrow(builder.new_scan().plan().splits())
    ),
}


def test_partitions_are_not_dropped_by_a_client_that_would_rewrite_files(catalog: RESTCatalog, database: str) -> None:
    schema = Schema.from_pyarrow_schema(
        pa.schema([("day", "string"), ("id", "int64")]), ["day"], ["day", "id"], {"bucket": "1"}
    )
    catalog.create_table(f"{database}.orders", schema, False)
    Orders(catalog, database, "orders").post({"day": "x", "id": 1})
    with pytest.raises(Exception, match=r"write with POST .*/orders/batches"):
        catalog.drop_partitions(f"{database}.orders", [{"day": "x"}])


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("name", ON_FILES)
def test_what_needs_paimons_files_stops_at_once_and_leaves_nothing(table: Orders, name: str, rows: bool) -> None:
    if rows:
        table.post({"id": 1, "name": "b"})
    before = table.files()
    with pytest.raises(Exception, match=r"read rows with GET .*/tables/orders/rows.*write with POST .*/orders/batches"):
        ON_FILES[name](table)
    assert table.files() == before
