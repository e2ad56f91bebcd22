"""Codes of faults are a closed set: every one is provoked, explained in docs/errors.md and listed in OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from app.api.shared.problems import READ_FAULTS
from app.core.errors import FaultCode
from app.main import create_app
from app.settings import Settings
from tests.api import fault_cases
from tests.api.conftest import DATABASES, LOOPBACK
from tests.api.fault_cases import CASES, Service

DOCUMENT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
GROUPS = (
    *(fault_cases.VALUES, fault_cases.SCHEMAS, fault_cases.WARNINGS, fault_cases.CHANGES, fault_cases.REQUESTS),
    *(fault_cases.TOKENS, fault_cases.BOUNDS),
)
# What pydantic can find wrong, by the kind of its own schema, in JSON and in the texts of a query.
FOUND_BY_PYDANTIC: dict[str, set[str]] = {
    **{
        kind: set()
        for kind in ("any", "default", "nullable", "definitions", "definition-ref", "model-field", "literal")
    },
    # Our own readers of long lists, and how they are called: they find what is wrong with an inner kind.
    **{kind: set() for kind in ("function-before", "function-after", "function-wrap", "no-info")},
    "str": {"string_type"},
    "int": {"int_parsing", "int_parsing_size", "int_type"},
    "bool": {"bool_parsing", "bool_type"},
    "enum": {"enum"},
    "dict": {"dict_type"},
    "list": {"list_type", "too_long", "too_short"},
    "model": {"model_attributes_type"},
    "model-fields": {"missing"},
    "tagged-union": {"union_tag_invalid", "union_tag_not_found", "model_attributes_type"},
}
TOLD_BY_ANOTHER_NAME = {"missing"}  # its message and fix are our own


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("faults")
    app = create_app(Settings(KEYFOLD_DATA=folder / "data", workers=0))
    with TestClient(app, LOOPBACK, raise_server_exceptions=False) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.api.routes.batches.patience.PATIENCE_SECONDS", 0.1)  # what waits in vain waits briefly
        patch.setattr("app.http.unread._SILENCE_SECONDS", 0.05)
        assert client.post(DATABASES, json={"name": "shop"}).status_code == 200
        yield Service(app, client, folder)


def test_every_code_has_one_case() -> None:
    assert set(CASES) == set(FaultCode)
    assert sum(len(group) for group in GROUPS) == len(CASES)


@pytest.mark.parametrize("code", CASES)
def test_a_code_is_provoked(service: Service, code: FaultCode) -> None:
    assert code in [fault["code"] for fault in CASES[code](service)]


def test_every_code_is_explained_by_its_meaning_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", DOCUMENT, re.MULTILINE)
    assert rows == [(code.value, code.meaning) for code in FaultCode]


def test_a_meaning_is_a_phrase_of_its_own() -> None:
    meanings = [code.meaning for code in FaultCode]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)


def test_codes_are_lower_case_names_in_alphabetical_order() -> None:
    assert [code.value for code in FaultCode] == sorted(name.lower() for name in FaultCode.__members__)


@pytest.mark.parametrize("component", ["Fault", "TableWarning"])
def test_openapi_lists_the_codes_of_faults_and_warnings(service: Service, component: str) -> None:
    schemas: dict[str, Any] = service.app.openapi()["components"]["schemas"]
    assert schemas[component]["properties"]["code"] == {"$ref": "#/components/schemas/FaultCode"}
    assert schemas["FaultCode"]["enum"] == [code.value for code in FaultCode]


def test_whatever_pydantic_can_find_wrong_has_a_code(service: Service) -> None:
    kinds = {kind for route in service.app.routes if isinstance(route, APIRoute) for kind in _kinds_of_schemas(route)}
    assert kinds >= {"str", "int", "model"}
    assert kinds <= set(FOUND_BY_PYDANTIC), "say what pydantic can find wrong with it"
    found = {fault for kind in kinds for fault in FOUND_BY_PYDANTIC[kind]}
    assert found - TOLD_BY_ANOTHER_NAME == set(READ_FAULTS) - {"extra_forbidden"}


def _kinds_of_schemas(route: APIRoute) -> Iterator[str]:
    body = [route.body_field] if route.body_field else []
    for field in [*get_flat_params(route.dependant), *body]:
        yield from _kinds(field._type_adapter.core_schema)  # type: ignore[attr-defined]  # of a ModelField


def _kinds(schema: Any) -> Iterator[str]:
    """The kinds of pydantic's core schemas inside ``schema``."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str):
            yield schema["type"]
        for name, inner in schema.items():
            if name != "json_schema_input_schema":  # what the OpenAPI document shows; nothing is checked by it
                yield from _kinds(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _kinds(inner)
