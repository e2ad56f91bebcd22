"""What each route needs of a token: every one says it, lists show no more, bodies name no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from httpx2 import Response

from app.api.document.docs_page import PAGE_PATHS
from app.api.middleware.auth import OPEN_PATHS
from app.api.routes.operating import signing_in
from app.api.shared.needs import NEEDS, About
from app.api.shared.operations import Operations
from app.core.access import Role
from app.http.callers import CREDENTIAL_PATHS
from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, TABLES, new_table
from tests.api.walk import DOCUMENT, OPERATIONS

# POSTs that store nothing.
QUESTIONS = {"batchGetRows", "simulateRows", "simulateMerge", "validateTable", "validateDdl", "validateChanges"}


def operation_ids() -> dict[str, tuple[str, str]]:
    return {DOCUMENT[path][method]["operationId"]: (path, method) for path, method in OPERATIONS}


def test_every_route_says_what_it_needs_and_no_other(built_app: tuple[FastAPI, Any]) -> None:
    assert built_app[0].state.operations.ids == NEEDS.keys()
    of_others = {"getMetrics", "signIn", "renewSignIn", "getAccessToken"}
    of_iceberg = {operation for operation in NEEDS if "Iceberg" in operation and operation != "getTableIceberg"}
    assert NEEDS.keys() - operation_ids().keys() == of_others | of_iceberg, (
        "which Prometheus, Debezium, RFC 6749 and Iceberg describe"
    )


def test_a_route_that_says_nothing_does_not_start() -> None:
    app = FastAPI()
    app.add_api_route("/new", lambda: None, operation_id="newRoute")
    with pytest.raises(LookupError, match="newRoute"):
        Operations(app.routes)


def test_only_open_paths_need_nothing() -> None:
    nothing = {operation for operation, need in NEEDS.items() if need is None}
    open_ids = nothing & operation_ids().keys()
    # Those that nobody describes are where a credential comes in the body: the gate knows their paths.
    undescribed = {route.path for route in signing_in.router.routes if isinstance(route, APIRoute)}
    assert undescribed == CREDENTIAL_PATHS
    assert nothing - open_ids == {"signIn", "renewSignIn", "getAccessToken", "getIcebergToken"}
    paths = {operation_ids()[operation][0] for operation in open_ids}
    assert paths | {f"{path}/" for path in paths} == OPEN_PATHS - PAGE_PATHS - {"/openapi.json"}


def test_what_a_path_names_is_what_the_token_must_be_for() -> None:
    for operation, (path, _) in operation_ids().items():
        need = NEEDS[operation]
        if need is not None:
            of_table, of_database = "{table}" in path, "{database}" in path
            assert of_table is (need.about is About.TABLE), operation
            assert (of_database and not of_table) is (need.about in (About.DATABASE, About.PART)), operation


def test_reading_needs_to_read_and_storing_needs_more() -> None:
    tokens = {"listTokens"}  # who has which token is nobody's business but an admin's
    for operation, (_, method) in operation_ids().items():
        need = NEEDS[operation]
        if need is not None and operation not in tokens:
            assert (need.role is Role.READ) is (method == "get" or operation in QUESTIONS), operation


def test_the_operations_of_each_role_are_documented() -> None:
    document = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+`(?:, )?)+) \|$", document, re.MULTILINE))
    documented = {Role(role): set(re.findall(r"\w+", operations)) for role, operations in rows.items()}
    needed = {role: {one for one, need in NEEDS.items() if need is not None and need.role is role} for role in Role}
    assert documented == needed


Calling = Callable[..., Response]


@pytest.fixture
def admin(app: FastAPI, client: TestClient) -> TestClient:
    """A client that may do everything, in a catalog with three tables in two databases."""
    client.headers["Authorization"] = f"Bearer {create_token(app.state.parts.database, 'boss')}"
    for database, tables in (("hr", ["people"]), ("shop", ["orders", "wide"])):
        assert client.post(DATABASES, json={"name": database}).status_code == 200
        for table in tables:
            body = new_table(table)
            body["identifier"]["database"] = database
            assert client.post(f"{DATABASES}/{database}/tables", json=body).status_code == 200
    return client


@pytest.fixture
def bearer(app: FastAPI, admin: TestClient) -> Callable[..., Calling]:
    """Makes a token, and what calls with it."""

    def make(role: Role, *on: str) -> Calling:
        token = create_token(app.state.parts.database, f"{role}-{len(on)}", role, on)
        headers = {"Authorization": f"Bearer {token}"}
        return lambda method, path, **sent: admin.request(method, path, headers=headers, **sent)

    return make


def codes(answer: Response) -> list[str]:
    assert answer.status_code == 403, answer.text
    assert answer.json()["errorCode"] == "forbidden"
    return [fault["code"] for fault in answer.json()["errors"]]


def test_lists_show_what_the_token_is_for(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.READ, "shop.orders", "later.*")
    assert call("GET", DATABASES).json()["databases"] == ["shop"]
    assert call("GET", TABLES).json()["tables"] == ["orders"]
    details = call("GET", f"{DATABASES}/shop/table-details").json()["tableDetails"]
    assert [table["name"] for table in details] == ["orders"]
    assert call("GET", f"{DATABASES}/shop").status_code == 200
    assert codes(call("GET", f"{DATABASES}/hr")) == ["missing_scope"]
    assert codes(call("GET", f"{DATABASES}/nowhere/tables")) == ["missing_scope"]


def test_pages_of_lists_are_of_what_is_shown(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.READ, "shop.wide", "hr.people")
    first = call("GET", DATABASES, params={"maxResults": "1"}).json()
    assert (first["databases"], first["nextPageToken"]) == (["hr"], "hr")
    second = call("GET", DATABASES, params={"maxResults": "1", "pageToken": "hr"}).json()
    assert (second["databases"], second["nextPageToken"]) == (["shop"], None)


def test_a_table_found_by_its_id_is_requested_by_its_name(admin: TestClient, bearer: Callable[..., Calling]) -> None:
    ids = {name: admin.get(f"{TABLES}/{name}").json()["id"] for name in ("orders", "wide")}
    call = bearer(Role.READ, "shop.orders")
    assert call("GET", f"/v1/catalog/tables/id/{ids['orders']}").json()["name"] == "orders"
    assert codes(call("GET", f"/v1/catalog/tables/id/{ids['wide']}")) == ["missing_scope"]


def test_a_name_with_a_plus_is_the_name_that_the_route_reads(admin: TestClient, bearer: Callable[..., Calling]) -> None:
    for name in ("a b", "a+b"):
        assert admin.post(TABLES, json=new_table(name)).status_code == 200
    call = bearer(Role.READ, "shop.`a b`")
    for sent, status in (("a+b", 200), ("a%20b", 200), ("a%2Bb", 403), ("a+b/", 200), ("a%2Bb/", 403)):
        assert call("GET", f"{TABLES}/{sent}").status_code == status, sent
        assert call("GET", f"{TABLES}/{sent.rstrip('/')}/rows?key=1").status_code == (404 if status == 200 else 403)


def test_what_a_body_names_must_be_covered_too(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.ADMIN, "shop.*", "more.*")
    assert codes(call("POST", DATABASES, json={"name": "other"})) == ["missing_scope"]
    assert call("POST", DATABASES, json={"name": "more"}).status_code == 200
    wide, shown = {"database": "shop", "object": "wide"}, {"database": "hr", "object": "wide"}
    for source, destination in ((wide, shown), (shown, wide)):
        body = {"source": source, "destination": destination}
        assert codes(call("POST", "/v1/catalog/tables/rename", json=body)) == ["missing_scope"]
    moved = {"source": wide, "destination": {"database": "more", "object": "wide"}}
    assert call("POST", "/v1/catalog/tables/rename", json=moved).status_code == 200


def test_one_table_is_not_its_database(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.ADMIN, "shop.orders", "shop.mine")
    assert codes(call("POST", f"{DATABASES}/shop", json={"updates": {"a": "b"}})) == ["missing_scope"]
    assert codes(call("DELETE", f"{DATABASES}/shop")) == ["missing_scope"]
    assert codes(call("POST", TABLES, json=new_table("yours"))) == ["missing_scope"]
    assert call("POST", TABLES, json=new_table("mine")).status_code == 200
    assert call("DELETE", f"{TABLES}/mine").status_code == 200


def test_what_stores_nothing_needs_to_read_only(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.READ, "shop.*")
    record = {"records": [{"id": 1}]}
    assert call("POST", f"{TABLES}/wide/rows:simulate", json=record).status_code == 200
    simulated = {"schema": new_table()["schema"], **record}
    assert call("POST", "/v1/catalog/merges:simulate", json=simulated).status_code == 200
    trial = {"validateOnly": "true"}
    assert call("POST", TABLES, json=new_table("new"), params=trial).json() == {"violations": [], "warnings": []}
    assert call("POST", f"{TABLES}/wide", json={"changes": []}, params=trial).status_code == 200


@pytest.mark.parametrize("query", ["", "?validateOnly=false", "?validateOnly=true&validateOnly=false"])
def test_what_is_no_trial_needs_to_be_admin(bearer: Callable[..., Calling], query: str) -> None:
    call = bearer(Role.WRITE, "shop.*")
    assert codes(call("POST", f"{TABLES}{query}", json=new_table("new"))) == ["missing_role"]
    assert codes(call("POST", f"{TABLES}/wide{query}", json={"changes": []})) == ["missing_role"]


def test_an_admin_of_one_database_is_none_of_tokens(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.ADMIN, "shop.*", "hr.*")
    body = {"name": "more", "role": "admin", "on": ["*"]}
    for answer in (call("GET", "/v1/tokens"), call("POST", "/v1/tokens", json=body), call("DELETE", "/v1/tokens/boss")):
        assert codes(answer) == ["missing_scope"]


def test_a_missing_role_is_reported_before_the_body_is_looked_at(bearer: Callable[..., Calling]) -> None:
    call = bearer(Role.READ, "shop.*")
    assert codes(call("POST", f"{TABLES}/wide/batches", content=b"{")) == ["missing_role"]
    assert codes(call("POST", DATABASES, content=b"{")) == ["missing_role"]


NOBODY = ("", "", "")


def names(reported: dict[str, str]) -> tuple[str, str, str]:
    return reported["owner"], reported["createdBy"], reported["updatedBy"]


def test_who_created_and_who_last_changed_are_names_of_tokens(
    admin: TestClient, bearer: Callable[..., Calling]
) -> None:
    call = bearer(Role.ADMIN, "shop.*", "hr.*")  # admin-2; the other admin is boss
    assert names(admin.get(f"{DATABASES}/shop").json()) == ("boss", "boss", "boss")
    call("POST", f"{DATABASES}/shop", json={"updates": {"a": "b"}})
    assert names(call("GET", f"{DATABASES}/shop").json()) == ("boss", "boss", "admin-2")
    option = {"action": "setOption", "key": "merge.max-staleness", "value": "5 s"}
    assert names(call("POST", f"{TABLES}/wide", json={"changes": [option]}).json()) == ("boss", "boss", "admin-2")
    assert names(call("POST", TABLES, json=new_table("mine")).json()) == ("admin-2", "admin-2", "admin-2")
    mine, renamed = ({"database": database, "object": "mine"} for database in ("shop", "hr"))
    admin.post("/v1/catalog/tables/rename", json={"source": mine, "destination": renamed})
    assert names(admin.get(f"{DATABASES}/hr/tables/mine").json()) == ("admin-2", "admin-2", "boss")


def test_without_tokens_nobody_has_a_name(client: TestClient) -> None:
    assert names(client.post(DATABASES, json={"name": "shop"}).json()) == NOBODY
    assert names(client.post(TABLES, json=new_table()).json()) == NOBODY
