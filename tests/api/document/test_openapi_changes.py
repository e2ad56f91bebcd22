"""Differences of OpenAPI documents are told in words."""

from __future__ import annotations

import copy
from typing import Any

from tests.api.document.openapi_changes import changes
from tests.api.document.test_document import DOCUMENT

ROWS = "/v1/catalog/databases/{database}/tables/{table}/rows"


def _changed() -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT)


def test_the_same_document_has_no_changes() -> None:
    assert changes(DOCUMENT, _changed()) == []


def test_examples_may_differ() -> None:
    new = _changed()
    new["paths"][ROWS]["put"]["requestBody"]["content"]["application/json"]["example"] = {"another": 1}
    assert changes(DOCUMENT, new) == []


def test_what_is_gone_is_named() -> None:
    new = _changed()
    del new["paths"][ROWS]["get"]["responses"]["304"]
    del new["paths"][ROWS]["patch"]
    del new["components"]["schemas"]["Batch"]["properties"]["mergeId"]
    reported = changes(DOCUMENT, new)
    assert reported[:2] == [
        f"operation patchRow (PATCH {ROWS}) is gone",
        f"operation getRow (GET {ROWS}): status 304 is gone",
    ]
    assert reported[2].startswith("schemas: Batch.properties: mergeId is gone")
    assert len(reported) == 3


def test_what_is_new_or_another_is_named() -> None:
    new = _changed()
    new["components"]["schemas"]["BatchState"]["enum"].append("lost")
    new["components"]["schemas"]["Batch"]["properties"]["records"]["type"] = "string"
    [parameter] = [one for one in new["paths"][ROWS]["get"]["parameters"] if one["name"] == "columns"]
    parameter["required"] = True
    assert sorted(changes(DOCUMENT, new)) == [
        f"operation getRow (GET {ROWS}): parameter query columns.required was False and is True",
        "schemas: Batch.properties.records.type was 'integer' and is 'string'",
        "schemas: BatchState.enum: 'lost' is new",
    ]
