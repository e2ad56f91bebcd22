"""``GET T/openapi.json``: the operations of one table, typed by its columns."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import JSONResponse

from app.api.document.components import schema
from app.api.document.document import objects_in
from app.api.middleware.routing import Router
from app.api.shared.paths import TABLE_PATH
from app.api.shared.problems import PROBLEM_RESPONSES
from app.api.shared.transactions import Reading, TableDep
from app.core.plan.records.integers import integers_of
from app.core.plan.records.record_decoder import KIND_MEMBER
from app.core.table.history import Table
from app.core.table.options.entries import Integers
from app.core.table.records import RowKind
from app.http.typed_columns import columns_schema, example_of
from app.services.tables.rules import table_rules

router = Router(prefix=TABLE_PATH, tags=["tables"], responses=PROBLEM_RESPONSES)
Json = dict[str, Any]
_NAMES: Final = ("database", "table")
_BY_PATH: Final = "/rows/{key}"  # for a single key column
_WORDS: Final = (
    "text: BIGINTs are typed as text, as `Prefer: integers=text` requests; by default as the table's option says"
)
_SPELLINGS: Final = {"integers", "prefer"}  # the parameters of an operation that spells whole numbers as it is asked to
_DOCUMENT: Final = {"application/json": {"schema": schema("Document")}}


@router.get(
    "/openapi.json",
    operation_id="getTableDocument",
    response_class=JSONResponse,
    responses={200: {"description": "an OpenAPI document", "content": _DOCUMENT}},
)
def get_table_document(
    table: TableDep,
    repository: Reading,  # noqa: ARG001  # the transaction in which the table is read
    request: Request,
    integers: Annotated[Integers | None, Query(description=_WORDS)] = None,
) -> JSONResponse:
    """Return an OpenAPI document of this table alone: its operations, typed by its columns, keys and row kinds."""
    return JSONResponse(typed(request.app.openapi(), table, integers))


def typed(document: Mapping[str, Any], table: Table, chosen: Integers | None = None) -> Json:
    """Return the part of ``document`` that describes ``table``, with the types of its rows, keys and records."""
    integers = integers_of(table.schema, chosen)
    paths = {
        _named(path, table): _without_names(item) for path, item in document["paths"].items() if _is_of(path, table)
    }
    of_table: Json = copy.deepcopy({**document, "paths": paths})
    for operation in (operation for item in of_table["paths"].values() for operation in item.values()):
        _spell(operation, integers, default=integers is integers_of(table.schema, None))
        _exemplify(operation, table, integers)
    schemas = of_table["components"]["schemas"] | _components(table, integers)
    used = _used(of_table["paths"], schemas)
    of_table["components"]["schemas"] = {name: one for name, one in schemas.items() if name in used}
    tags = {tag for item in of_table["paths"].values() for operation in item.values() for tag in operation["tags"]}
    of_table["tags"] = [tag for tag in of_table["tags"] if tag["name"] in tags]
    of_table["info"] |= {"title": f"Keyfold: {table.full_name}", "summary": f"The table {table.full_name}"}
    return of_table


def _is_of(path: str, table: Table) -> bool:
    return path.startswith(TABLE_PATH) and (len(table.schema.primary_key) == 1 or not path.endswith(_BY_PATH))


def _named(path: str, table: Table) -> str:
    names = {"{database}": table.database, "{table}": table.name}
    for place, name in names.items():
        # A brace would mark a parameter in the document.
        path = path.replace(place, quote(name, safe=""))
    return path


def _without_names(item: Json) -> Json:
    kept = {}
    for method, operation in item.items():
        parameters = [parameter for parameter in operation.get("parameters", []) if parameter["name"] not in _NAMES]
        kept[method] = {**operation, "parameters": parameters}
    return kept


def _components(table: Table, integers: Integers) -> Json:
    columns = table.schema.columns
    named = columns_schema(columns, integers)
    key = columns_schema(table.schema.key_columns, integers)
    refused = {rule.kind for rule in table_rules(table.schema).kinds if rule.treatment == "refused"}
    taken = [kind for kind in RowKind if kind.text not in refused]
    names, signs = [kind.name for kind in taken], [kind.text for kind in taken]
    kind = {"type": "string", "enum": signs, "x-enum-varnames": names, "description": "an insert without it"}
    required = [column.name for column in table.schema.key_columns]
    record = {**named, "properties": {**named["properties"], KIND_MEMBER: kind}, "required": required}
    described = {
        "Row": named | {"description": "a row; columns that were not requested are left out"},
        "Key": key | {"required": required, "description": "the primary key"},
        "Columns": named | {"description": "columns of a row; those of its key may be left out"},
        "Record": record | {"description": "columns of a row, and what becomes of it"},
    }
    return {name: {"title": name, **one} for name, one in described.items()}


def _spell(operation: Json, integers: Integers, *, default: bool) -> None:
    """Type BIGINT in one spelling, since clients generated from this document cannot request the other. With
    ``default`` it is the table's default, which needs no parameter.
    """
    if not {parameter["name"] for parameter in operation["parameters"]} >= _SPELLINGS:
        return
    if default:
        operation["parameters"] = [
            parameter for parameter in operation["parameters"] if parameter["name"] not in _SPELLINGS
        ]
    for parameter in operation["parameters"]:
        if parameter["name"] == "integers":
            parameter["schema"] = {"type": "string", "enum": [integers.value]}
            parameter["description"] = f"{integers}, as rows are typed here: send it, or `Prefer: integers={integers}`"


def _exemplify(operation: Json, table: Table, integers: Integers) -> None:
    """Remove the examples, which are of another table, and set an example key of this one."""
    for item in objects_in(operation):
        item.pop("example", None)
    for parameter in operation["parameters"]:
        if parameter["name"] == "key":
            texts = [str(example_of(column.type, integers)) for column in table.schema.key_columns]
            parameter["example"] = texts[0] if parameter["in"] == "path" else texts


def _used(paths: Json, schemas: Mapping[str, Json]) -> set[str]:
    names: set[str] = set()
    waiting = list(_references(paths))
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _references(schemas[name])
    return names


def _references(value: object) -> Iterator[str]:
    place = "#/components/schemas/"
    for item in objects_in(value):
        for target in (item.get("$ref"), *(item["mapping"].values() if isinstance(item.get("mapping"), dict) else ())):
            if isinstance(target, str) and target.startswith(place):
                yield target.removeprefix(place)
