"""The JSON bodies of databases and tables: Paimon's REST catalog's members, camelCase on the wire."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, BeforeValidator, FailFast, Field, TypeAdapter
from typing_extensions import TypeAliasType

from app.api.document.components import DataType
from app.api.shared.answers import Answer, EpochMillis, From, NextPageToken, Payload
from app.api.shared.problems import Fault
from app.core.errors import FaultCode

MOST_READ: Final = 2000  # elements of a list or an object whose faults are all reported


def first_fault_of(kind: Any) -> BeforeValidator:
    """Read values with more than ``MOST_READ`` elements only up to the first fault: to report half a million, pydantic
    would block the event loop for seconds.
    """
    reader: TypeAdapter[Any] = TypeAdapter(Annotated[kind, FailFast()])

    def read(sent: object) -> object:
        return reader.validate_python(sent) if isinstance(sent, (list, dict)) and len(sent) > MOST_READ else sent

    return BeforeValidator(read)


# A body's lists and objects of texts.
Names = Annotated[list[str], first_fault_of(list[str])]
Options = TypeAliasType("Options", Annotated[dict[str, str], first_fault_of(dict[str, str])])


class CatalogConfig(Payload):
    """Settings that a client mixes into its own: ``defaults`` below, ``overrides`` above them."""

    defaults: dict[str, str]
    overrides: dict[str, str]
    idempotency_key_lifetime: timedelta = Field(description="how long an Idempotency-Key is known after its batch")


class Health(Payload):
    """Whether the process serves."""

    status: Literal["ok"]


class Readiness(Payload):
    """Whether the parts that requests and merges need answer."""

    status: Literal["ok", "unavailable"]
    catalog: bool
    warehouse: bool
    spark: bool
    reasons: dict[str, str] = Field(description="of each part that is not ready, why")


class Audit(Answer):
    """Times in milliseconds since 1970-01-01 UTC. The names are those of tokens, empty if none was needed; the owner
    is who created it.
    """

    owner: Annotated[str, From("created_by")]
    created_at: EpochMillis
    created_by: str
    updated_at: EpochMillis
    updated_by: str


class NewDatabase(Payload):
    """A database to create."""

    name: str
    options: Options | None = None


class DatabaseChanges(Payload):
    """Options to remove, by key, and options to set."""

    removals: Names | None = None
    updates: Options | None = None


class ChangedDatabase(Answer):
    """The keys of the options that were removed, that were set, and that were to be removed but did not exist."""

    removed: list[str]
    updated: list[str]
    missing: list[str]


class DatabaseDetails(Audit):
    """A database."""

    id: str
    name: str
    location: str
    options: Options


class DatabaseNames(Answer):
    """A page of database names; ``nextPageToken`` is null on the last page."""

    databases: Annotated[list[str], From("items")]
    next_page_token: NextPageToken


class DataField(Payload):
    """A column or a field of a ROW. ``type`` is SQL text, or an object for ARRAY, MULTISET, MAP and ROW."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None


class Schema(Payload):
    """A table's schema."""

    fields: list[DataField]
    partition_keys: list[str]
    primary_keys: list[str]
    options: Options
    comment: str | None = None


class NewDataField(Payload):
    """A column to create; without an id it gets the next free one."""

    id: int | None = None
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None


class NewSchema(Payload):
    """A schema to create; the primary key is either in ``primaryKeys`` or in the option ``primary-key``."""

    fields: list[NewDataField]
    partition_keys: list[str] | None = None
    primary_keys: list[str] | None = None
    options: Options | None = None
    comment: str | None = None


def described_as(kind: Any) -> BeforeValidator:
    """Any JSON that the annotated type takes, described as ``kind``: the core validates it, to report all faults
    together.
    """
    return BeforeValidator(lambda sent: sent, json_schema_input_type=kind)


class Identifier(Payload):
    """A table's full name. Paimon calls the table's own name ``object``; ``name`` is understood, too."""

    database: str
    object: str = Field(validation_alias=AliasChoices("object", "name"))


class NewTable(Payload):
    """A table to create."""

    identifier: Identifier
    table_schema: Annotated[dict[str, Any], described_as(NewSchema)] = Field(alias="schema")


class RenameTable(Payload):
    """The table ``source`` becomes ``destination``, in the same database or in another one."""

    source: Identifier
    destination: Identifier


SchemaOfTable = Annotated[Schema, From(lambda table: table.schema.to_json())]


class TableDetails(Audit):
    """A table. ``path`` is the folder of its files."""

    id: str
    name: str
    database: str
    path: str
    is_external: Annotated[bool, From(lambda _: False)]
    schema_id: int
    table_schema: SchemaOfTable = Field(alias="schema")


class NumberedSchema(Answer):
    """A schema that the table with this ``id`` has or had."""

    id: str
    schema_id: int
    table_schema: SchemaOfTable = Field(alias="schema")


class TableWarning(Answer):
    """A warning about a legal but surprising definition, with a way to avoid it."""

    pointer: str
    code: FaultCode
    message: str
    fix: str


class StoredTable(TableDetails):
    """A table that was just created or altered; Paimon's clients ignore the ``warnings``."""

    warnings: list[TableWarning]


class TableNames(Answer):
    """A page of table names; ``nextPageToken`` is null on the last page."""

    tables: Annotated[list[str], From("items")]
    next_page_token: NextPageToken


class TableDetailsPage(Answer):
    """A page of tables; ``nextPageToken`` is null on the last page."""

    table_details: list[TableDetails]
    next_page_token: NextPageToken


class Validated(Answer):
    """The answer of ``validateOnly``: the request is valid, and nothing was stored."""

    violations: list[Fault]
    warnings: list[TableWarning]
