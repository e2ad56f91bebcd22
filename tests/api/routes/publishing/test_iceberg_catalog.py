"""Iceberg's REST catalog as its clients ask it: namespaces, tables, metadata, refusals in their form."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.core.access import Role
from app.services.access.tokens import create_token
from app.services.publishing.publications import Publisher
from tests.api.conftest import DATABASES, TABLES, new_table, parts_of
from tests.services.builders import merge_staged

ICEBERG = "/iceberg/v1"
NAMESPACES = f"{ICEBERG}/namespaces"
ORDERS = f"{NAMESPACES}/shop/tables/orders"


class Catalog:
    """A service whose worker is the test, with a published table, an empty one, and one that is not published."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.parts = parts_of(client)
        client.post(DATABASES, json={"name": "hr"})
        options = {"iceberg.publish": "true", "merge.max-staleness": "1 d"}
        self.ids = {
            name: client.post(TABLES, json=new_table(name, options=given)).json()["id"]
            for name, given in (("orders", options), ("empty", options), ("plain", {}))
        }

    def publish(self, *records: dict[str, Any]) -> None:
        sent = self.client.post(f"{TABLES}/orders/batches", json={"records": records})
        assert sent.status_code == 202
        merge_staged(self.parts.database, self.parts.warehouse, self.ids["orders"])
        Publisher(self.parts.database, self.parts.warehouse).publish()

    def get(self, path: str, **sent: Any) -> Any:
        answer = self.client.get(path, **sent)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, method: str, path: str, **sent: Any) -> tuple[int, str, str]:
        """The status, and what Iceberg's clients are told: the type and the message."""
        answer = self.client.request(method, path, **sent)
        assert answer.headers["content-type"] == "application/json"  # iceberg-js reads no other
        error = answer.json()["error"]
        assert error["code"] == answer.status_code
        return answer.status_code, error["type"], error["message"]


@pytest.fixture
def catalog(shop: TestClient) -> Catalog:
    return Catalog(shop)


def test_databases_are_namespaces_and_published_tables_are_its_tables(catalog: Catalog) -> None:
    assert catalog.get(f"{ICEBERG}/config?warehouse=any") == {"defaults": {}, "overrides": {}}
    assert catalog.get(NAMESPACES) == {"namespaces": [["hr"], ["shop"]], "next-page-token": None}
    assert catalog.get(f"{NAMESPACES}?parent=shop")["namespaces"] == []
    assert catalog.get(f"{NAMESPACES}/shop") == {"namespace": ["shop"], "properties": {}}
    names = [identifier["name"] for identifier in catalog.get(f"{NAMESPACES}/shop/tables")["identifiers"]]
    assert names == ["empty", "orders"]
    assert catalog.client.head(f"{NAMESPACES}/shop").status_code == 200
    assert catalog.client.head(ORDERS).status_code == 200


def test_a_list_comes_in_pages_where_a_client_asks_for_them(catalog: Catalog) -> None:
    first = catalog.get(NAMESPACES, params={"pageToken": "", "pageSize": 1})
    assert first == {"namespaces": [["hr"]], "next-page-token": "hr"}
    last = catalog.get(NAMESPACES, params={"pageToken": first["next-page-token"], "pageSize": 1})
    assert last == {"namespaces": [["shop"]], "next-page-token": None}
    assert len(catalog.get(NAMESPACES, params={"pageSize": 1})["namespaces"]) == 2
    of_tables = {"pageToken": "", "pageSize": 2}
    pages = [catalog.get(f"{NAMESPACES}/shop/tables", params=of_tables)]
    while (token := pages[-1]["next-page-token"]) is not None:
        pages.append(catalog.get(f"{NAMESPACES}/shop/tables", params=of_tables | {"pageToken": token}))
    assert [identifier["name"] for page in pages for identifier in page["identifiers"]] == ["empty", "orders"]


def test_a_table_without_rows_is_an_empty_one(catalog: Catalog) -> None:
    loaded = catalog.get(f"{NAMESPACES}/shop/tables/empty")
    assert (loaded["metadata-location"], loaded["metadata"]["snapshots"]) == (None, [])
    assert [field["name"] for field in loaded["metadata"]["schemas"][0]["fields"]] == ["id", "note"]


def test_metadata_has_the_snapshots_that_are_kept_and_an_etag_that_holds(catalog: Catalog) -> None:
    catalog.publish({"id": 1})
    catalog.client.post(
        f"{TABLES}/orders", json={"changes": [{"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}]}
    )
    Publisher(catalog.parts.database, catalog.parts.warehouse).publish()
    answer = catalog.client.get(ORDERS)
    metadata = answer.json()["metadata"]
    assert [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]] == [1]  # the same rows, under other columns
    assert (metadata["current-snapshot-id"], metadata["current-schema-id"]) == (1, 1)
    assert {schema["schema-id"] for schema in metadata["schemas"]} == {0, 1}
    assert metadata["properties"]["gc.enabled"] == "false"
    known = catalog.client.get(ORDERS, headers={"If-None-Match": answer.headers["ETag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert catalog.get(f"{ORDERS}?snapshots=refs")["metadata"]["current-schema-id"] == 1
    assert catalog.client.post(f"{ORDERS}/metrics", json={"report-type": "scan-report"}).status_code == 204


def test_what_is_missing_is_reported_as_clients_expect_it(catalog: Catalog) -> None:
    missing = "NoSuchTableException"
    assert catalog.refused("GET", f"{NAMESPACES}/nope")[:2] == (404, "NoSuchNamespaceException")
    assert catalog.refused("GET", f"{NAMESPACES}/shop%1Forders")[:2] == (404, "NoSuchNamespaceException")
    assert catalog.refused("GET", f"{NAMESPACES}/shop/tables/nope")[:2] == (404, missing)
    # Spark asks so for the table ``shop.orders.snapshots`` before it finds the metadata table of ``orders``.
    assert catalog.refused("GET", f"{NAMESPACES}/shop%1Forders/tables/snapshots")[:2] == (404, missing)
    status, kind, message = catalog.refused("GET", f"{NAMESPACES}/shop/tables/plain")
    assert (status, kind) == (404, missing)
    assert message == "table shop.plain is not published as Iceberg: set iceberg.publish = true"
    assert catalog.client.head(f"{NAMESPACES}/shop/tables/nope").status_code == 404
    for wrong in ("snapshots=some", "snapshot=all"):
        assert catalog.refused("GET", f"{ORDERS}?{wrong}")[:2] == (400, "BadRequestException")


def test_there_are_no_views_and_clients_go_on_to_the_table(catalog: Catalog) -> None:
    views = f"{NAMESPACES}/shop/views"
    assert catalog.get(f"{views}?pageToken=&pageSize=10") == {"identifiers": [], "next-page-token": None}
    for missing in ("nope", "views", "tables"):
        assert catalog.refused("GET", f"{NAMESPACES}/{missing}/views")[:2] == (404, "NoSuchNamespaceException")
    assert catalog.refused("GET", f"{views}/orders")[:2] == (404, "NoSuchViewException")
    assert catalog.refused("POST", views, json={})[:2] == (403, "ForbiddenException")


def test_clients_in_java_send_a_plus_for_a_blank(catalog: Catalog) -> None:
    for name in ("a b+c", "a+b c"):
        catalog.client.post(TABLES, json=new_table(name, options={"iceberg.publish": "true"})).raise_for_status()
    for sent, name in (("a+b%2Bc", "a b+c"), ("a%2Bb+c", "a+b c"), ("a%20b%2Bc", "a b+c")):
        table = catalog.get(f"{NAMESPACES}/shop/tables/{sent}")["metadata"]
        named = catalog.get(f"{TABLES}/{sent}")
        assert (named["name"], table["table-uuid"].replace("-", "")) == (name, named["id"]), sent


WRITES = [
    ("POST", NAMESPACES),
    ("DELETE", f"{NAMESPACES}/shop"),
    ("POST", f"{NAMESPACES}/shop/properties"),
    ("POST", f"{NAMESPACES}/shop/tables"),
    ("POST", ORDERS),
    ("DELETE", ORDERS),
    ("POST", f"{ICEBERG}/tables/rename"),
    ("POST", f"{ICEBERG}/transactions/commit"),
]


def test_whoever_writes_is_told_how_it_is_done(catalog: Catalog) -> None:
    for method, path in WRITES:
        status, kind, message = catalog.refused(method, path, json={} if method == "POST" else None)
        assert (status, kind) == (403, "ForbiddenException"), path
        assert "POST T/batches" in message, path


def test_a_token_is_had_by_credentials_and_shows_what_it_is_for(catalog: Catalog) -> None:
    assert catalog.get(NAMESPACES, headers={"Authorization": "Bearer None"})["namespaces"]  # no tokens are needed yet
    token = create_token(catalog.parts.database, "reader", Role.READ, ["shop.empty"])
    assert catalog.refused("GET", NAMESPACES)[:2] == (401, "NotAuthorizedException")
    form = {"grant_type": "client_credentials", "scope": "catalog"}
    in_body = form | {"client_id": "reader", "client_secret": token}
    for sent in ({"data": in_body}, {"data": form, "auth": ("reader", token)}):
        answer = catalog.client.post(f"{ICEBERG}/oauth/tokens", **sent)
        assert (answer.status_code, answer.json()["access_token"]) == (200, token)
    wrong = catalog.client.post(f"{ICEBERG}/oauth/tokens", data=in_body | {"client_secret": "kf_no"})
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    headers = {"Authorization": f"Bearer {token}"}
    assert catalog.get(NAMESPACES, headers=headers)["namespaces"] == [["shop"]]
    shown = catalog.get(f"{NAMESPACES}/shop/tables", headers=headers)["identifiers"]
    assert [one["name"] for one in shown] == ["empty"]
    assert catalog.refused("GET", ORDERS, headers=headers)[:2] == (403, "ForbiddenException")


def test_the_lines_say_where_the_token_goes_if_one_is_needed(catalog: Catalog) -> None:
    catalog.publish({"id": 1})
    lines = catalog.get(f"{TABLES}/orders/iceberg")["readBy"]
    assert not any("KEYFOLD_TOKEN" in line for line in lines.values())
    assert "AUTHORIZATION_TYPE 'none'" in lines["duckdb"]
    token = create_token(catalog.parts.database, "reader", Role.READ, ["shop.*"])
    signed = catalog.get(f"{TABLES}/orders/iceberg", headers={"Authorization": f"Bearer {token}"})["readBy"]
    assert {name for name, line in signed.items() if "KEYFOLD_TOKEN" in line} == signed.keys() - {"metadata"}
    assert "TOKEN 'KEYFOLD_TOKEN'); ATTACH 'keyfold' (TYPE iceberg, ENDPOINT 'http" in signed["duckdb"]
    assert signed["duckdb"].endswith("SECRET keyfold); SELECT * FROM keyfold.shop.orders;")
