"""What Paimon's clients are told that nobody else is, and the parts of Paimon's protocol that Keyfold has not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.api.shared.paimon_clients import CONFIG_OVERRIDES, NOT_DONE
from tests.api.conftest import DATABASES, TABLES, Create
from tests.api.walk import OPERATIONS

# As a client does it: what the configuration calls ``header.X`` goes out with every request.
PAIMON = {key.removeprefix("header."): text for key, text in CONFIG_OVERRIDES.items() if key.startswith("header.")}
ROUTES = [route for entry in NOT_DONE for route in entry.routes]


@pytest.mark.parametrize("route", ROUTES)
def test_what_keyfold_has_not_of_paimons_protocol_is_a_501_that_says_what_to_do(shop: TestClient, route: str) -> None:
    method, path = route.split(" ")
    for slash in ("", "/"):
        answer = shop.request(method, f"/v1/catalog/{path.replace('{}', 'shop')}{slash}", headers=PAIMON)
        body = answer.json()
        assert (answer.status_code, body["code"], body["errorCode"]) == (501, 501, "not_implemented")
        assert any(word in body["message"] for word in ("GET /v1", "POST /v1"))


@pytest.mark.parametrize("route", [route for route in ROUTES if "{}/tables/{}" in route])
def test_the_refusal_names_the_path_to_write_to_as_it_was_asked(shop: TestClient, route: str) -> None:
    method, path = route.split(" ")
    answer = shop.request(method, f"/v1/catalog/{path.replace('{}', 'a%5Cb%2Bc')}", headers=PAIMON).json()
    assert "POST /v1/catalog/databases/a%5Cb%2Bc/tables/a%5Cb%2Bc/batches" in answer["message"]


def test_no_route_of_the_service_is_hidden_by_a_refusal() -> None:
    served = {f"{method.upper()} {path}" for path, method in OPERATIONS}
    named = [route.replace("{}", "{database}", 1).replace("{}", "{table}", 1) for route in ROUTES]
    assert not served & {route.replace(" ", " /v1/catalog/") for route in named}


def test_any_other_path_is_still_a_404_and_any_other_method_a_405(wide: object, shop: TestClient) -> None:
    assert shop.get(f"{TABLES}/wide/nothing").status_code == 404
    assert shop.get(f"{TABLES}/wide/branches/b/c/d").status_code == 404
    assert shop.put(f"{TABLES}/wide/partitions").status_code == 405
    of_others = shop.post(f"{TABLES}/wide/partitions")  # the path is one of theirs, too, and has its own methods
    assert (of_others.status_code, of_others.headers["allow"]) == (405, "GET, HEAD")
    assert shop.get(f"{TABLES}/wide/commit").status_code == 404


def test_a_database_goes_with_its_tables_only_where_that_is_said(create: Create, shop: TestClient) -> None:
    create("wide")
    create("other")
    for query, headers in (("", {}), ("?cascade=false", {}), ("?cascade=false", PAIMON), ("", {"Keyfold-Client": "x"})):
        refused = shop.delete(f"{DATABASES}/shop{query}", headers=headers)
        assert (refused.status_code, refused.json()["errorCode"]) == (409, "database_not_empty")
        assert "?cascade=true" in refused.json()["detail"]
    assert shop.get(TABLES).json()["tables"] == ["other", "wide"]
    assert shop.delete(f"{DATABASES}/shop?cascade=true").status_code == 200
    assert shop.get(f"{DATABASES}/shop").status_code == 404


@pytest.mark.parametrize("query", ["", "?cascade=true"])
def test_paimons_clients_drop_a_database_with_its_tables_and_files(
    create: Create, shop: TestClient, query: str
) -> None:
    folder = Path(create("wide")["path"].removeprefix("file://"))
    assert shop.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1}]}).status_code == 202
    assert folder.exists()
    shop.post(DATABASES, json={"name": "beside"})
    assert shop.delete(f"{DATABASES}/shop{query}", headers=PAIMON).status_code == 200
    assert (folder.exists(), shop.get(DATABASES).json()["databases"]) == (False, ["beside"])
    assert shop.delete(f"{DATABASES}/shop{query}", headers=PAIMON).status_code == 404


def test_only_paimons_clients_are_told_to_ask_before_they_read(create: Create, shop: TestClient) -> None:
    created = create("wide", options={"bucket": "1"})
    places = (f"{TABLES}/wide", f"/v1/catalog/tables/id/{created['id']}", f"{DATABASES}/shop/table-details")
    for place in places:
        plain, reported = shop.get(place).json(), shop.get(place, headers=PAIMON).json()
        [shown, paimons] = [one.get("tableDetails", [one])[0]["schema"]["options"] for one in (plain, reported)]
        assert (shown, paimons) == ({"bucket": "1"}, {"bucket": "1", "query-auth.enabled": "true"})
    # A client that makes a table of what another one shows sends it back.
    assert create("copy", options=paimons)["schema"]["options"] == {"bucket": "1"}
