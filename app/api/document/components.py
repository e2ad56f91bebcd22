"""Components of the OpenAPI document without a class: objects whose members depend on the table, and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema
from typing_extensions import TypeAliasType

from app.core.table.records import RowKind as Kind

_SIGNS: Final = [kind.text for kind in Kind]

Row = TypeAliasType("Row", Annotated[dict[str, Any], Field(description="a row: a member for each requested column")])
Key = TypeAliasType("Key", Annotated[dict[str, Any], Field(description="a member for each primary-key column")])
Spec = TypeAliasType("Spec", Annotated[dict[str, Any], Field(description="values of partition columns")])
DataType = TypeAliasType(
    "DataType",
    Annotated[
        str | dict[str, Any],
        Field(description="SQL text as `DECIMAL(10, 2) NOT NULL`, or an object for ARRAY, MULTISET, MAP and ROW"),
    ],
)
# Names for generators, which cannot make any of the signs.
RowKind = TypeAliasType(
    "RowKind",
    Annotated[
        str,
        WithJsonSchema(
            {
                "type": "string",
                "enum": _SIGNS,
                "x-enum-varnames": [kind.name for kind in Kind],
                "description": "insert, update before, update after, delete",
            }
        ),
    ],
)
Treatment = TypeAliasType("Treatment", Literal["accepted", "ignored", "refused"])

# Bodies without a pydantic model, since routes read records themselves. No member is named: some generators rename
# `_kind` where it has one, and leave out the one of the caller, so that a delete becomes an insert.
RECORD: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": (
        "a row's columns; and `_kind`, a text, if it is not an insert: `+I` (default), `-U`, `+U`, `-D`, or their words"
    ),
    "additionalProperties": True,
}
_RECORDS: Final = {"type": "array", "items": {"$ref": "#/components/schemas/Record"}}
SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Record": RECORD,
    "RecordList": {
        "type": "object",
        "description": "records of one table, in their order; a body may be the list alone",
        "required": ["records"],
        "properties": {"records": _RECORDS},
    },
    "RecordsByTable": {
        "type": "object",
        "description": "records of several tables, by name",
        "required": ["tables"],
        "properties": {
            "tables": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/RecordList"}}
        },
    },
    "Trial": {
        "type": "object",
        "description": "records, and the schema of the table that does not exist",
        "required": ["schema", "records"],
        "properties": {"schema": {"$ref": "#/components/schemas/NewSchema"}, "records": _RECORDS},
    },
    "Columns": {
        "type": "object",
        "description": "columns of a row; those of its key may be left out",
        "additionalProperties": True,
    },
    "Document": {"type": "object", "description": "an OpenAPI document", "additionalProperties": True},
    "CloudEvent": {
        "type": "object",
        "description": "a CloudEvent in structured mode, whose data is a change event",
        "additionalProperties": True,
    },
}

_HEADERS: Final[Mapping[str, tuple[str, str]]] = {
    "ETag": ("string", "of this answer: send it as If-None-Match; 304 means that it is unchanged"),
    "Cache-Control": ("string", "private, no-cache: cache it for one user, and revalidate it with its ETag before use"),
    "Vary": ("string", "the headers of the request that this answer was made for"),
    "Content-Digest": ("string", "of this answer as it is sent, if Want-Content-Digest requested one (RFC 9530)"),
    "Location": ("string", "the path of the created or requested resource"),
    "Retry-After": (
        "integer",
        "seconds to wait before retrying the request, or before reading the state of what was accepted",
    ),
    "WWW-Authenticate": ("string", "Bearer"),
    "Link": ("string", 'the next page, rel="next"'),
    "Preference-Applied": ("string", "what of Prefer was done"),
    "X-Request-Id": ("string", "of this request, as the service's log has it"),
    "Idempotency-Replayed": ("string", "true: an earlier request with this key was answered so"),
    "Keyfold-Snapshot": ("integer", "the snapshot that is in the answer, 0 before the first merge"),
    "Keyfold-Table": ("string", "the id of the table; one that was dropped and created again has another"),
    "Keyfold-Schema": ("integer", "the schemaId of the columns in the answer"),
    "Keyfold-Batch": ("integer", "the number of the last batch that is in the answer"),
    "Keyfold-Set-Aside": ("integer", "batches that are in no answer, where there are any"),
    "Keyfold-Next-Page": ("string", "pageToken of the next page; absent on the last one"),
    "Next-Page-Token": ("string", "pageToken of the next page; absent on the last one"),
}
HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    name: {"description": words, "schema": {"type": kind}} for name, (kind, words) in _HEADERS.items()
}


def headers(*names: str) -> dict[str, Any]:
    """Return the headers of a response, for ``responses=`` of a route. Raise ``KeyError`` for a new name."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names if HEADERS[name]}


# For every answer whose form of BIGINT a request can choose.
SPELLED: Final = headers("Vary", "Preference-Applied")


def schema(name: str) -> dict[str, Any]:
    """Return the schema of a component, by name."""
    return {"$ref": f"#/components/schemas/{name}"}
