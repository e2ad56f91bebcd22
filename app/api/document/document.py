"""The OpenAPI document: FastAPI's, completed with components, statuses, security and examples."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from threading import Lock
from typing import Any, Final

from fastapi import FastAPI

from app.api.document.components import HEADERS, SCHEMAS, headers
from app.api.shared.needs import NEEDS
from app.api.shared.problems import Problem, problems

Json = dict[str, Any]
METHODS: Final = ("get", "post", "put", "patch", "delete")
ABOUT: Final[Mapping[str, Any]] = {
    "title": "Keyfold",
    "summary": "Primary-key tables whose rows are assembled from partial, late, repeated and out-of-order updates",
    "description": "Producers post the columns that they know; the table's merge rules fold them into one row per key."
    " Every failure is a `Problem` (RFC 9457) that names each fault and its fix.",
    "license_info": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    "servers": [{"url": "/", "description": "the service that answers this document"}],
}
TAGS: Final[Mapping[str, str]] = {
    "catalog": "The settings that Paimon's clients request first",
    "databases": "Namespaces of tables",
    "tables": "Tables and their schemas, also from SQL and as SQL",
    "batches": "Records posted, all or nothing, and what became of them",
    "merges": "Merges and compactions: requested, watched and cancelled",
    "partitions": "Partitions, listed and dropped",
    "rows": "Rows by key and by scan, and changes of one row",
    "snapshots": "What the table held at each commit, and its files",
    "health": "Health of the process, and damaged files",
    "tags": "Names that keep a snapshot",
    "stats": "What a table holds and costs",
    "changelog": "What changed, in pages or live",
    "rules": "What the table does with records, in words",
    "explanations": "Why a row has its values: its records, step by step",
    "forgettings": "Keys removed permanently from all files of a table",
    "simulations": "The effect of records; nothing is stored",
    "tokens": "API tokens: what each may do, and when it expires",
}
_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "made by `keyfold token create NAME`, begins `kf_`"}
}
# The error statuses that an operation has by its parameters and body.
_NOT_ACCEPTABLE: Final = HTTPStatus.NOT_ACCEPTABLE.value
_OF_THE_MOMENT: Final = frozenset({"getTableDelta", "getTableIceberg"})
_IF_NONE_MATCH: Final = "if-none-match"
_OF_ALL: Final = (401, 403, 429, 503)
_OF_INPUT: Final = (400,)
_OF_PATH: Final = (404,)
_OF_BODY: Final = (408, 413, 415)
_EXCLUSIVE: Final = frozenset({"string", "integer", "object", "array", "boolean"})


def install_document(app: FastAPI) -> None:
    """Let ``app`` answer FastAPI's document, completed by ``described``."""
    generate, lock = app.openapi, Lock()
    made: list[Json] = []

    def openapi() -> Json:
        with lock:  # routes in threads ask, too, and FastAPI keeps its own before it is described
            if not made:
                made.append(described(copy.deepcopy(generate())))
        return made[0]

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def described(document: Json) -> Json:
    """Return ``document`` with components, statuses, security and examples; an operation's own declarations have
    priority.
    """
    for operation in operations_in(document):
        _describe(operation)
    for item in document["paths"].values():
        _revalidate(item.get("get"))
    parts = document.setdefault("components", {})
    parts["schemas"] = dict(sorted((parts.get("schemas", {}) | _schemas()).items()))
    parts |= {"headers": copy.deepcopy({**HEADERS}), "securitySchemes": _SECURITY}
    document["security"] = [{"token": []}, {}]  # none is needed where no token was made
    document["tags"] = [{"name": name, "description": words} for name, words in TAGS.items()]
    for member in objects_in([document["paths"], parts["headers"]]):
        _tidy(member)
    for name, schema in parts["schemas"].items():
        for member in objects_in(schema):
            _tidy(member)
        schema["title"] = name
    for operation in operations_in(document):
        _exemplify(operation, examples().get(operation["operationId"], {}))
    return document


def operations_in(document: Json) -> Iterator[Json]:
    """Yield every operation of ``document``."""
    for item in document["paths"].values():
        yield from (item[method] for method in METHODS if method in item)


def objects_in(value: object) -> Iterator[Json]:
    """Yield every JSON object in ``value``, itself included, but not those in examples."""
    if isinstance(value, dict):
        yield value
        for name, member in value.items():
            if name not in ("example", "examples"):
                yield from objects_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from objects_in(member)


def _describe(operation: Json) -> None:
    """Describe an operation: its summary is the first sentence, its statuses are those that it can have."""
    operation["summary"] = _first_clause(operation["description"])
    for parameter in operation.get("parameters", []):
        _never_null(parameter)
    responses: Json = operation["responses"]
    if NEEDS.get(operation["operationId"]) is not None:
        refusals = {str(status): one for status, one in problems(*_statuses(operation)).items()}
        responses = refusals | responses
    else:
        operation["security"] = []
        if any("content" in answer for status, answer in responses.items() if status.startswith("2")):
            responses |= {str(_NOT_ACCEPTABLE): problems(_NOT_ACCEPTABLE)[_NOT_ACCEPTABLE]}
    answers = {status: dict(answer) for status, answer in responses.items()}
    for status, answer in answers.items():
        answer["headers"] = headers("X-Request-Id") | _own_headers(status) | answer.get("headers", {})
    operation["responses"] = dict(sorted(answers.items()))


def _first_clause(text: str) -> str:
    return re.split(r"[.:;](?: |$)|\n\n", text, maxsplit=1)[0].replace("\n", " ").rstrip(".")


def _never_null(parameter: Json) -> None:
    """Remove null from a parameter's schema: clients leave it out instead. Move its description next to the schema."""
    choices = [choice for choice in parameter["schema"].get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) == 1:
        parameter["schema"] = choices[0]
    if parameter["schema"].get("description") == parameter.get("description"):
        parameter["schema"].pop("description", None)


def _statuses(operation: Json) -> tuple[int, ...]:
    parameters = operation.get("parameters", [])
    of_path = _OF_PATH if any(parameter["in"] == "path" for parameter in parameters) else ()
    of_body = _OF_BODY if "requestBody" in operation else ()
    return (*_OF_ALL, *(_OF_INPUT if parameters or of_body else ()), *of_path, *of_body)


def _own_headers(status: str) -> Json:
    if status == str(HTTPStatus.UNAUTHORIZED.value):
        return headers("WWW-Authenticate")
    return headers("Retry-After") if status in ("202", "429", "503") else {}


def _revalidate(operation: Json | None) -> None:
    """Describe what ``app.api.middleware.conditions`` does for every answer to GET that may be cached."""
    if operation is None or "200" not in operation["responses"]:
        return
    name = operation["operationId"]
    if name in _OF_THE_MOMENT or NEEDS.get(name) is None:
        return
    responses = operation["responses"]
    kept = headers("ETag", "Cache-Control", "Vary")
    responses["200"]["headers"] |= kept
    same: Json = {"description": "the answer is the one whose ETag was sent", "headers": headers("X-Request-Id")}
    same |= responses.get("304", {})
    responses["304"] = same | {"headers": same["headers"] | kept}
    operation["responses"] = dict(sorted(responses.items()))
    parameters: list[Json] = operation.setdefault("parameters", [])
    if _IF_NONE_MATCH not in (parameter["name"].lower() for parameter in parameters):
        schema = {
            "type": "string",
            "description": "the ETag of the answer that the caller has: 304 where it is the same",
        }
        parameters.append({"name": _IF_NONE_MATCH, "in": "header", "required": False, "schema": schema})


def _tidy(item: Json) -> None:
    """Remove titles that pydantic generates, which generators take for names; type whole numbers as int64; use oneOf
    for exclusive alternatives, since some generators make an empty type of anyOf.
    """
    if isinstance(item.get("title"), str):
        del item["title"]
    if item.get("type") == "integer":
        item.setdefault("format", "int64")
    types = [choice.get("type") for choice in item.get("anyOf", [])]
    if types and _EXCLUSIVE.issuperset(types) and len({*types}) == len(types):
        item["oneOf"] = item.pop("anyOf")


def _schemas() -> Json:
    """Return the schemas of bodies that routes read or answer without pydantic."""
    problem = Problem.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    made: Json = problem.pop("$defs")
    return {name: dict(one) for name, one in SCHEMAS.items()} | made | {"Problem": problem}


@cache
def examples() -> Mapping[str, Any]:
    """Return for each operation a request and its answer, as ``tests/api/document/test_examples.py`` recorded them."""
    text = files("app.api.document").joinpath("examples.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _exemplify(operation: Json, example: Mapping[str, Any]) -> None:
    """Add a recorded request and its answer to an operation, in the members that clients and pages read."""
    given = example.get("parameters", {})
    for parameter in operation.get("parameters", []):
        if parameter["name"] in given:
            parameter["example"] = given[parameter["name"]]
    if "request" in example:
        _first(operation["requestBody"]["content"])["example"] = example["request"]
    if "body" in example and example["body"] is not None:
        answer = operation["responses"][str(example["status"])]["content"]
        answer[example["mediaType"]]["example"] = example["body"]


def _first(content: Json) -> Json:
    first: Json = next(iter(content.values()))
    return first
