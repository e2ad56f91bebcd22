"""Failures over HTTP: statuses, the one body, and what it never shows."""

from __future__ import annotations

import gc
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.outgoing import Outgoing
from app.api.shared.problems import Problem
from app.core import errors
from app.core.errors import ErrorCode, FaultCode, Invalid, KeyfoldError, NotFound, Violation
from app.http.kinds import KINDS
from app.main import create_app
from app.settings import Settings
from tests.api.conftest import DATABASES, TABLES, Create, Opened

STATUSES = {
    errors.Invalid: 400,
    errors.Unauthorized: 401,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.Unsupported: 501,
    errors.Unavailable: 503,
}


@pytest.fixture(scope="module")
def built_app(tmp_path_factory: pytest.TempPathFactory) -> tuple[FastAPI, Path]:
    """An application of this module's own, with a route that fails as ``_answer_to`` says."""
    link = tmp_path_factory.mktemp("problems") / "data"
    app = create_app(Settings(KEYFOLD_DATA=link, workers=0))

    def fail() -> None:
        raise app.state.error

    app.add_api_route("/fail", fail, include_in_schema=False)
    return app, link


def _answer_to(app: FastAPI, client: TestClient, error: Exception) -> Any:
    """What the application answers when a route raises ``error``."""
    app.state.error = error
    return client.get("/fail")


def test_every_kind_of_error_has_a_status() -> None:
    assert set(KINDS) == set(KeyfoldError.__subclasses__())


@pytest.mark.parametrize(("kind", "status"), STATUSES.items())
def test_a_kind_of_error_has_a_status(app: FastAPI, client: TestClient, kind: type[KeyfoldError], status: int) -> None:
    response = _answer_to(app, client, kind("no luck", resource_type="TABLE", resource_name="wide"))
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": f"urn:keyfold:problem:{kind.default_code}",
        "title": kind.default_code.replace("_", " ").capitalize(),
        "status": status,
        "detail": "no luck",
        "instance": "/fail",
        "requestId": response.headers["x-request-id"],
        "message": "no luck",
        "code": status,
        "resourceType": "TABLE",
        "resourceName": "wide",
        "errorCode": kind.default_code.value,
        "errors": [],
        "errorCount": 0,
    }


def test_every_fault_is_reported_and_faults_left_out_are_counted(app: FastAPI, client: TestClient) -> None:
    faults = [
        Violation("/records/3/a", FaultCode.OUT_OF_RANGE, "too big", "use BIGINT", 3, "a"),
        Violation("", FaultCode.MISSING, "m"),
    ]
    body = _answer_to(app, client, Invalid("bad rows", violations=faults, total_violations=5000)).json()
    assert body["errors"] == [
        {
            "pointer": "/records/3/a",
            "code": "out_of_range",
            "detail": "too big",
            "fix": "use BIGINT",
            "row": 3,
            "column": "a",
        },
        {"pointer": "", "code": "missing", "detail": "m", "fix": ""},
    ]
    assert body["errorCount"] == 5000
    assert Problem.model_validate(body).error_code is ErrorCode.INVALID_REQUEST


def _answers_left() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, NotFound | Outgoing)]


def test_a_lookup_leaves_nothing_to_the_collector_of_garbage(client: TestClient, create: Create) -> None:
    create("kept")
    client.post(f"{TABLES}/kept/batches", json={"records": [{"id": 1}]}).raise_for_status()
    gc.collect()
    before = {id(one) for one in _answers_left()}  # an answer that a test of another file left unread
    gc.disable()
    try:
        asked = [client.get(f"{TABLES}/kept/rows", params={"key": key}) for key in (987_001, 1, 987_001, 1)]
        deadline = time.monotonic() + 10  # the thread that answered may still be leaving its last answer
        while (left := [one for one in _answers_left() if id(one) not in before]) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        gc.enable()
    assert [answer.status_code for answer in asked] == [404, 200] * 2
    assert left == []


def test_a_message_that_quotes_half_a_surrogate_pair_is_still_json(app: FastAPI, client: TestClient) -> None:
    error = Invalid("bad \ud800", violations=[Violation("/\ud800", FaultCode.ILLEGAL_TEXT, "größe \ud800")])
    response = _answer_to(app, client, error)
    assert response.status_code == 400
    assert response.json()["detail"] == "bad \ud800"
    assert "größe" in response.text


@pytest.mark.parametrize("error", [RuntimeError("password=hunter2"), KeyfoldError("password=hunter2"), MemoryError()])
def test_an_unexpected_error_shows_nothing_and_is_logged_under_its_id(
    app: FastAPI, client: TestClient, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    with caplog.at_level(logging.ERROR, "app.api.shared.problems"):
        response = _answer_to(app, client, error)
    body = response.json()
    assert (response.status_code, body["code"], body["errorCode"]) == (500, 500, "internal")
    assert "hunter2" not in response.text
    number = body["instance"].removeprefix("urn:uuid:")
    logged = [record for record in caplog.records if number in record.getMessage()]
    assert [record.exc_info and record.exc_info[1] for record in logged] == [error]


def test_a_recursion_error_is_the_requests_fault(app: FastAPI, client: TestClient) -> None:
    assert _answer_to(app, client, RecursionError()).status_code == 400


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"[" * 100_000, "the body is nested too deeply: about 900 levels are read, and types have at most 50"),
        (b'{"name": "\xff"}', "the body is not UTF-8"),
        (b'{"name": ' + b"1" * 10_000 + b"}", "the body has a whole number of more than 4300 digits"),
        (b'{"name"', "the body is not JSON: Expecting ':' delimiter at character 7"),
        (b"", "the body is missing"),
    ],
)
def test_a_body_that_is_not_json_is_a_400_that_says_why(client: TestClient, body: bytes, detail: str) -> None:
    response = client.post(DATABASES, content=body)
    assert (response.status_code, response.json()["detail"]) == (400, detail)


def test_faults_of_the_bodys_members_are_pointed_at_and_never_a_422(client: TestClient) -> None:
    response = client.post(f"{DATABASES}/shop/tables", json={"identifier": {"database": 5}, "schema": []})
    assert response.status_code == 400
    faults = {fault["pointer"]: fault["code"] for fault in response.json()["errors"]}
    assert faults == {"/identifier/database": "string_type", "/identifier/object": "missing", "/schema": "dict_type"}
    assert all(fault["fix"] for fault in response.json()["errors"])


def test_a_slash_in_a_members_name_is_escaped_in_the_pointer(client: TestClient) -> None:
    response = client.post(DATABASES, json={"name": "a", "options": {"x/y~z": 1}})
    assert response.json()["errors"][0]["pointer"] == "/options/x~1y~0z"


def test_a_json_body_sent_as_a_form_is_a_415_that_tells_the_header(client: TestClient) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = client.post(DATABASES, content=b'{"name": "shop"}', headers=headers)
    assert response.status_code == 415
    assert "Content-Type: application/json" in response.json()["detail"]


def test_openapi_describes_problems_under_their_own_media_type_only(app: FastAPI) -> None:
    document = app.openapi()
    reference = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert set(document["components"]["schemas"]["Problem"]["properties"]) >= {"code", "errorCode", "errors", "message"}
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    described = [operation for operation in operations if "health" not in operation["tags"]]
    assert described
    for operation in described:
        failures = [response for status, response in operation["responses"].items() if status >= "4"]
        for response in failures:
            [(media_type, content)] = response["content"].items()
            assert {media_type: {"schema": content["schema"]}} == reference


@pytest.mark.slow(reason="sends 8 MiB to every route")
def test_no_route_reads_a_body_beyond_the_limit(opened: Opened) -> None:
    small = opened(max_body_bytes=1000)
    answer = small.post(DATABASES, json={"name": "x" * 2000})
    assert (answer.status_code, answer.json()["errorCode"]) == (413, "payload_too_large")
    chunks = (b" " * 600 for _ in range(3))
    streamed = small.post(DATABASES, content=chunks, headers={"Content-Type": "application/json"})
    assert streamed.status_code == 413
    assert small.get(DATABASES).json()["databases"] == ["shop"]


@pytest.mark.parametrize("path", [f"{DATABASES}/shop", TABLES])
def test_an_answer_names_a_thousand_faults_and_counts_all(shop: TestClient, path: str) -> None:
    wrong = [1] * 1500
    schema = {"fields": wrong, "primaryKeys": ["id"]}
    body = {"removals": wrong, "updates": {}, "identifier": {"database": "shop", "object": "t"}, "schema": schema}
    reported = shop.post(path, json=body).json()
    assert len(reported["errors"]) == 1000
    assert reported["errorCount"] >= 1500
