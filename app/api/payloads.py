"""The JSON bodies of databases and tables: Paimon's REST catalog's members, camelCase on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.api.problems import Fault
from app.core.alter.draft import Place
from app.core.errors import FaultCode, Violation
from app.core.table.history import Database, Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_millis(time: datetime) -> int:
    """``time`` as whole milliseconds since 1970-01-01 UTC."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


class Payload(BaseModel):
    """A JSON object. Members that it does not know are ignored: Paimon's newer clients may send more."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class CatalogConfig(Payload):
    """Settings that a client mixes into its own: ``defaults`` below, ``overrides`` above them."""

    defaults: dict[str, str]
    overrides: dict[str, str]


class Health(Payload):
    """Whether the process serves."""

    status: str


class Readiness(Payload):
    """Whether the parts that requests and merges need answer."""

    status: str
    catalog: bool
    spark: bool


class Audit(Payload):
    """Times in milliseconds since 1970-01-01 UTC. Keyfold has no users, so the names are empty."""

    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str


def _audit(described: Database | Table) -> dict[str, Any]:
    created, updated = epoch_millis(described.created_at), epoch_millis(described.updated_at)
    return {"owner": "", "created_at": created, "created_by": "", "updated_at": updated, "updated_by": ""}


class NewDatabase(Payload):
    """A database to create."""

    name: str
    options: dict[str, str] | None = None


class DatabaseChanges(Payload):
    """Options to remove, by key, and options to set."""

    removals: list[str] | None = None
    updates: dict[str, str] | None = None


class ChangedDatabase(Payload):
    """The keys of the options that were removed, set, and asked to be removed but not there."""

    removed: list[str]
    updated: list[str]
    missing: list[str]


class DatabaseDetails(Audit):
    """A database."""

    id: str
    name: str
    location: str
    options: dict[str, str]

    @classmethod
    def of(cls, database: Database, location: str) -> DatabaseDetails:
        """``database`` whose tables' folders are in the folder ``location``."""
        options = dict(database.options)
        return cls(id=database.id, name=database.name, location=location, options=options, **_audit(database))


class DatabaseNames(Payload):
    """A page of database names; ``nextPageToken`` is null on the last page."""

    databases: list[str]
    next_page_token: str | None


class DataField(Payload):
    """A column or a field of a ROW. ``type`` is SQL text, or an object for ARRAY, MULTISET, MAP and ROW."""

    id: int
    name: str
    type: str | dict[str, Any]
    description: str | None = None
    default_value: str | None = None


class Schema(Payload):
    """A table's schema."""

    fields: list[DataField]
    partition_keys: list[str]
    primary_keys: list[str]
    options: dict[str, str]
    comment: str | None = None


class NewDataField(Payload):
    """A column to create; without an id it gets the next free one."""

    id: int | None = None
    name: str
    type: str | dict[str, Any]
    description: str | None = None
    default_value: str | None = None


class NewSchema(Payload):
    """A schema to create; the primary key is either in ``primaryKeys`` or in the option ``primary-key``."""

    fields: list[NewDataField]
    partition_keys: list[str] | None = None
    primary_keys: list[str] | None = None
    options: dict[str, str] | None = None
    comment: str | None = None


class _DescribedAsNewSchema:
    """Any JSON object, described as a ``NewSchema``: the core reads it, to report all of its faults together."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(NewSchema.__pydantic_core_schema__)


class Identifier(Payload):
    """A table's full name. Paimon calls the table's own name ``object``; ``name`` is understood, too."""

    database: str
    object: str = Field(validation_alias=AliasChoices("object", "name"))


class NewTable(Payload):
    """A table to create."""

    identifier: Identifier
    table_schema: Annotated[dict[str, Any], _DescribedAsNewSchema] = Field(alias="schema")


class RenameTable(Payload):
    """The table ``source`` becomes ``destination``, in the same database or in another one."""

    source: Identifier
    destination: Identifier


class ColumnMove(Payload):
    """A column's new place; AFTER and BEFORE need ``referenceFieldName``."""

    field_name: str | None = None
    reference_field_name: str | None = None
    type: Place


class SetOption(Payload):
    """Sets a table option."""

    action: Literal["setOption"]
    key: str
    value: str


class RemoveOption(Payload):
    """Removes a table option."""

    action: Literal["removeOption"]
    key: str


class UpdateComment(Payload):
    """Sets the table's comment; null removes it."""

    action: Literal["updateComment"]
    comment: str | None = None


class AddColumn(Payload):
    """Adds a nullable column, last or where ``move`` says.

    In every change a path of several names leads into a column: a ROW by the names of its fields, an ARRAY by
    ``element``, the values of a MAP by ``value``.
    """

    action: Literal["addColumn"]
    field_names: list[str]
    data_type: str | dict[str, Any]
    comment: str | None = None
    move: ColumnMove | None = None


class RenameColumn(Payload):
    """Renames a column or nested field, and the options that name it along with it."""

    action: Literal["renameColumn"]
    field_names: list[str]
    new_name: str


class DropColumn(Payload):
    """Drops a column or nested field that no key and no option names."""

    action: Literal["dropColumn"]
    field_names: list[str]


class UpdateColumnType(Payload):
    """Gives a column, or what its path leads to, a wider type."""

    action: Literal["updateColumnType"]
    field_names: list[str]
    new_data_type: str | dict[str, Any]
    keep_nullability: bool = False


class UpdateColumnNullability(Payload):
    """Lets a column, or what its path leads to, hold null: ``newNullability`` true."""

    action: Literal["updateColumnNullability"]
    field_names: list[str]
    new_nullability: bool


class UpdateColumnComment(Payload):
    """Sets the description of a column or nested field; null removes it."""

    action: Literal["updateColumnComment"]
    field_names: list[str]
    new_comment: str | None = None


class UpdateColumnDefaultValue(Payload):
    """Sets a column's default; null removes it."""

    action: Literal["updateColumnDefaultValue"]
    field_names: list[str]
    new_default_value: str | None = None


class UpdateColumnPosition(Payload):
    """Moves a column; ``move`` names it."""

    action: Literal["updateColumnPosition"]
    move: ColumnMove


class DropPrimaryKey(Payload):
    """Always refused: Keyfold's tables need a key."""

    action: Literal["dropPrimaryKey"]


SchemaChange = Annotated[
    SetOption
    | RemoveOption
    | UpdateComment
    | AddColumn
    | RenameColumn
    | DropColumn
    | UpdateColumnType
    | UpdateColumnNullability
    | UpdateColumnComment
    | UpdateColumnDefaultValue
    | UpdateColumnPosition
    | DropPrimaryKey,
    Field(discriminator="action"),
]


class _DescribedAsSchemaChange:
    """Any JSON value, described as a ``SchemaChange``: the core reads it, to report all faults together."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(TypeAdapter(SchemaChange).core_schema)


class AlterTable(Payload):
    """Changes of a table, applied in order, all or nothing."""

    changes: list[Annotated[Any, _DescribedAsSchemaChange]]


class TableDetails(Audit):
    """A table. ``path`` is the folder of its files."""

    id: str
    name: str
    database: str
    path: str
    is_external: bool
    schema_id: int
    table_schema: Schema = Field(alias="schema")

    @classmethod
    def of(cls, table: Table, path: str) -> TableDetails:
        """``table`` whose files are in the folder ``path``."""
        return cls(
            id=table.id,
            name=table.name,
            database=table.database,
            path=path,
            is_external=False,
            schema_id=table.schema_id,
            table_schema=Schema.model_validate(table.schema.to_json()),
            **_audit(table),
        )


class TableWarning(Payload):
    """Something legal but surprising, and what to do if it is not wanted."""

    pointer: str
    code: FaultCode
    message: str
    fix: str

    @classmethod
    def all_of(cls, warnings: Sequence[Violation]) -> list[TableWarning]:
        """The warnings as the API shows them."""
        return [cls.model_validate(warning, from_attributes=True) for warning in warnings]


class StoredTable(TableDetails):
    """A table that was just created or altered; ``warnings`` tell what may surprise (Paimon's clients ignore them)."""

    warnings: list[TableWarning]

    @classmethod
    def with_warnings(cls, table: Table, path: str, warnings: Sequence[Violation]) -> StoredTable:
        """``table`` whose files are in the folder ``path``."""
        details = TableDetails.of(table, path)
        return cls(**dict(details), warnings=TableWarning.all_of(warnings))


class TableNames(Payload):
    """A page of table names; ``nextPageToken`` is null on the last page."""

    tables: list[str]
    next_page_token: str | None


class TableDetailsPage(Payload):
    """A page of tables; ``nextPageToken`` is null on the last page."""

    table_details: list[TableDetails]
    next_page_token: str | None


class Validated(Payload):
    """The answer of ``validateOnly``: nothing was stored and nothing is wrong; ``warnings`` tell what may surprise."""

    violations: list[Fault]
    warnings: list[TableWarning]

    @classmethod
    def of(cls, warnings: Sequence[Violation]) -> Validated:
        """A valid table with its warnings."""
        return cls(violations=[], warnings=TableWarning.all_of(warnings))
