"""Every change of a schema that Paimon's client can ask for."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Orders
from pypaimon.api.rest_exception import AlreadyExistsException, BadRequestException
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.catalog.rest.rest_catalog import RESTCatalog
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.schema.schema_change import SchemaChange

INT, BIGINT = AtomicType("INT"), AtomicType("BIGINT")


def _names(table: Orders) -> list[str]:
    return list(table.catalog.get_table(table.name).field_names)


def _field(table: Orders, name: str) -> DataField:
    return next(field for field in table.catalog.get_table(table.name).fields if field.name == name)


# Not the place of a column: pypaimon 2.1 cannot write a Move as JSON ("Object of type MoveType is not JSON
# serializable"), whoever it talks to.
def test_columns_are_added_renamed_and_dropped(catalog: RESTCatalog, table: Orders) -> None:
    catalog.alter_table(
        table.name, [SchemaChange.add_column("last", INT, "a comment"), SchemaChange.rename_column("name", "title")]
    )
    assert _names(table) == ["id", "title", "amount", "last"]
    assert _field(table, "last").description == "a comment"
    catalog.alter_table(table.name, [SchemaChange.drop_column("amount")])
    assert _names(table) == ["id", "title", "last"]


def test_a_column_gets_another_type_nullability_comment_and_default(catalog: RESTCatalog, table: Orders) -> None:
    catalog.alter_table(
        table.name,
        [
            SchemaChange.update_column_type("amount", BIGINT),
            SchemaChange.update_column_comment("amount", "how many"),
            SchemaChange.update_column_default_value(["amount"], "7"),
        ],
    )
    field = _field(table, "amount")
    assert (str(field.type), field.description, field.default_value) == ("BIGINT", "how many", "7")
    not_null = AtomicType("DECIMAL(20, 0)", nullable=False)
    catalog.alter_table(table.name, [SchemaChange.update_column_type("amount", not_null, keep_nullability=True)])
    assert str(_field(table, "amount").type) == "DECIMAL(20, 0)"
    with pytest.raises(BadRequestException, match="NOT NULL"):
        catalog.alter_table(table.name, [SchemaChange.update_column_nullability(["amount"], False)])


def test_options_and_the_comment_are_set_and_removed(catalog: RESTCatalog, table: Orders) -> None:
    catalog.alter_table(
        table.name,
        [SchemaChange.set_option("snapshot.num-retained.max", "20"), SchemaChange.update_comment("of the shop")],
    )
    shown = catalog.get_table(table.name).table_schema
    assert (shown.options["snapshot.num-retained.max"], shown.comment) == ("20", "of the shop")
    catalog.alter_table(
        table.name, [SchemaChange.remove_option("snapshot.num-retained.max"), SchemaChange.update_comment(None)]
    )
    shown = catalog.get_table(table.name).table_schema
    assert ("snapshot.num-retained.max" in shown.options, shown.comment) == (False, None)


@pytest.mark.parametrize(
    "change",
    [
        SchemaChange.drop_column("nope"),
        SchemaChange.rename_column("nope", "other"),
        SchemaChange.update_column_type("nope", BIGINT),
        SchemaChange.update_column_nullability("nope", True),
        SchemaChange.update_column_comment("nope", "x"),
        SchemaChange.update_column_default_value(["nope"], "1"),
    ],
    ids=lambda change: type(change).__name__,
)
def test_a_missing_column_is_reported_whatever_the_flag_for_missing_tables_says(
    catalog: RESTCatalog, table: Orders, change: Any
) -> None:
    for ignore in (False, True):
        with pytest.raises(BadRequestException, match="'nope' does not exist"):
            catalog.alter_table(table.name, [change], ignore_if_not_exists=ignore)
    assert _names(table) == ["id", "name", "amount"]


def test_the_flag_is_for_missing_tables(catalog: RESTCatalog, database: str) -> None:
    with pytest.raises(TableNotExistException):
        catalog.alter_table(f"{database}.nope", [SchemaChange.drop_column("x")])
    catalog.alter_table(f"{database}.nope", [SchemaChange.drop_column("x")], ignore_if_not_exists=True)


def test_a_column_that_exists_is_reported(catalog: RESTCatalog, table: Orders) -> None:
    for change in (SchemaChange.add_column("name", INT), SchemaChange.rename_column("amount", "name")):
        with pytest.raises(AlreadyExistsException, match="'name'"):
            catalog.alter_table(table.name, [change])


def test_a_change_that_would_lose_values_is_refused(catalog: RESTCatalog, table: Orders) -> None:
    table.post({"id": 1, "name": "a", "amount": 1})
    for change in (
        SchemaChange.update_column_type("amount", AtomicType("SMALLINT")),
        SchemaChange.drop_column("id"),
        SchemaChange.set_option("merge-engine", "first-row"),
    ):
        with pytest.raises(BadRequestException):
            catalog.alter_table(table.name, [change])
    assert _names(table) == ["id", "name", "amount"]
