"""The OpenAPI document as generators of clients like it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import validate

from app.api.document.document import objects_in, operations_in
from app.core.table.records import RowKind
from tests.api.openapi import COMMITTED, served

DOCUMENT = served()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def _shapes() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in [*SCHEMAS.items(), *DOCUMENT["paths"].items()]:
        for shape in objects_in(one):
            yield name, shape


def test_the_committed_document_is_the_one_that_is_served() -> None:
    documents = json.loads(COMMITTED.read_text()), DOCUMENT
    texts = (json.dumps(document, indent=1, sort_keys=True).splitlines() for document in documents)
    changes = difflib.unified_diff(*texts, "docs/openapi.json", "served", lineterm="", n=9)
    assert documents[0] == documents[1], "\n".join(["look at this, then run: make openapi", *changes])


def test_it_is_valid() -> None:
    validate(served())


def test_it_says_what_it_is_where_and_for_whom() -> None:
    info = DOCUMENT["info"]
    assert DOCUMENT["openapi"].startswith("3.1")
    assert info["license"] == {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    assert info["description"]
    assert DOCUMENT["servers"][0]["url"] == "/"
    assert DOCUMENT["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert DOCUMENT["security"] == [{"token": []}, {}]
    used = {tag for operation in operations_in(DOCUMENT) for tag in operation["tags"]}
    assert [tag["name"] for tag in DOCUMENT["tags"] if tag["description"]] == [*dict.fromkeys(_tags())]
    assert used == set(_tags())


def _tags() -> list[str]:
    return [tag["name"] for tag in DOCUMENT["tags"]]


def test_no_object_is_closed_by_silence() -> None:
    """Without members and without ``additionalProperties`` generators make a type that takes nothing."""
    for name, shape in _shapes():
        if shape.get("type") == "object":
            assert "properties" in shape or "additionalProperties" in shape, (name, shape)


def test_an_open_object_names_no_member() -> None:
    # openapi-generator sent a record with `_kind` without it where the document named that member: a delete was lost.
    opened = [(name, shape) for name, shape in _shapes() if shape.get("additionalProperties") not in (None, False)]
    assert "Record" in [name for name, _ in opened]
    assert [name for name, shape in opened if shape.get("properties")] == []


def test_alternatives_of_different_types_exclude_each_other() -> None:
    # openapi-generator made an empty struct of anyOf in Rust: no answer with a column's type could be read.
    assert [one["type"] for one in SCHEMAS["DataType"]["oneOf"]] == ["string", "object"]
    loose = [[one.get("type") for one in shape["anyOf"]] for _, shape in _shapes() if "anyOf" in shape]
    assert loose
    assert all("null" in types for types in loose), loose


def test_objects_with_members_are_components() -> None:
    for path, item in DOCUMENT["paths"].items():
        inline = [shape for shape in objects_in(item) if "properties" in shape and shape.get("type") == "object"]
        assert not inline, path


def test_components_have_names_that_are_types() -> None:
    for name, one in SCHEMAS.items():
        assert re.fullmatch("[A-Z][A-Za-z]+", name), name
        assert not name.endswith("Body"), name
        assert one["title"] == name
        assert not any(isinstance(shape.get("title"), str) for shape in objects_in(one) if shape is not one), name


def test_whole_numbers_have_64_bits() -> None:
    assert all(shape["format"] == "int64" for _, shape in _shapes() if shape.get("type") == "integer")


@pytest.mark.parametrize(
    ("component", "member"),
    [
        ("Batch", "state"),
        ("Merge", "state"),
        ("Merge", "job"),
        ("Merge", "trigger"),
        ("Snapshot", "kind"),
        ("Damage", "kind"),
        ("KindRule", "kind"),
        ("KindRule", "treatment"),
        ("Fault", "code"),
        ("Token", "role"),
    ],
)
def test_a_closed_word_is_an_enum(component: str, member: str) -> None:
    reference = SCHEMAS[component]["properties"][member]["$ref"]
    assert SCHEMAS[reference.rsplit("/", 1)[1]]["enum"]


def test_row_kinds_have_names_beside_their_signs() -> None:
    kinds = SCHEMAS["RowKind"]
    assert dict(zip(kinds["x-enum-varnames"], kinds["enum"], strict=True)) == {one.name: one.text for one in RowKind}


def test_each_operation_has_one_answer() -> None:
    for operation in operations_in(DOCUMENT):
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                assert "anyOf" not in content["schema"], (operation["operationId"], status)
        assert "validateOnly" not in [parameter["name"] for parameter in operation.get("parameters", [])]


def test_operations_have_the_statuses_that_they_answer_and_no_other() -> None:
    for operation in operations_in(DOCUMENT):
        statuses, name = set(operation["responses"]), operation["operationId"]
        parameters = operation.get("parameters", [])
        keyed = any(parameter["name"].lower() == "idempotency-key" for parameter in parameters)
        assert ("422" in statuses) is keyed, name
        assert ({"408", "413", "415"} <= statuses) is ("requestBody" in operation), name
        assert ("304" in statuses) is any(parameter["name"].lower() == "if-none-match" for parameter in parameters), (
            name
        )
        assert name in ("getHealth", "getReadiness") or {"401", "403", "429", "503", "default"} <= statuses


def test_answers_name_their_headers() -> None:
    headers = {f"#/components/headers/{name}" for name in DOCUMENT["components"]["headers"]}
    for operation in operations_in(DOCUMENT):
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"]
            references = {header["$ref"] for header in response["headers"].values() if "$ref" in header}
            assert references <= headers, "test_it_is_valid follows the references of schemas only"
            assert ("Retry-After" in response["headers"]) >= (status in ("429", "503"))
    row = DOCUMENT["paths"]["/v1/catalog/databases/{database}/tables/{table}/rows"]["get"]["responses"]
    assert {"ETag", "Keyfold-Snapshot", "Keyfold-Batch"} <= set(row["200"]["headers"])
    assert "content" not in row["304"]
    batch = DOCUMENT["paths"]["/v1/catalog/databases/{database}/tables/{table}/batches"]["post"]["responses"]
    assert {"Location", "Idempotency-Replayed", "Preference-Applied"} <= set(batch["202"]["headers"])
