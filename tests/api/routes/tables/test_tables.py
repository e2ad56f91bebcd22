"""Tables over HTTP, as Paimon's clients call them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.api.conftest import DATABASES, TABLES, Create, faults_of, fields_of, new_table


def without_warnings(answer: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a table later: warnings are told at once only."""
    return {name: value for name, value in answer.items() if name != "warnings"}


def test_a_created_table_is_shown_with_all_of_paimons_members(create: Create, shop: TestClient) -> None:
    answer = create("wide", options={"merge-engine": "partial-update"}, comment="one row per order")
    created = without_warnings(answer)
    assert [warning["code"] for warning in answer["warnings"]] == ["null_never_written", "absent_is_null"]
    assert shop.get(f"{TABLES}/wide").json() == created
    shown = new_table(options={"merge-engine": "partial-update"}, comment="one row per order")["schema"]
    assert (created["isExternal"], created["schemaId"], created["schema"]) == (False, 0, shown)
    assert created["path"] == f"{shop.get(f'{DATABASES}/shop').json()['location']}/{created['id']}"
    assert 1_700_000_000_000 < created["createdAt"] < 10_000_000_000_000


def test_descriptions_and_defaults_are_shown_only_where_they_are_set(create: Create) -> None:
    key, described = fields_of(id="BIGINT NOT NULL", n="INT")
    described |= {"description": "how many", "defaultValue": "7"}
    assert create(fields=[key, described])["schema"]["fields"] == [key, described]


def test_a_table_is_found_by_its_id_also_after_a_rename(create: Create, shop: TestClient) -> None:
    table = create("old")
    shop.post("/v1/catalog/tables/rename", json=_rename("old", "new"))
    assert shop.get(f"/v1/catalog/tables/id/{table['id']}").json()["name"] == "new"
    missing = shop.get("/v1/catalog/tables/id/nothing")
    assert (missing.status_code, missing.json()["resourceType"]) == (404, "TABLE")


def test_earlier_schemas_are_shown_by_their_numbers(create: Create, shop: TestClient) -> None:
    first = create()
    added = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}
    second = shop.post(f"{TABLES}/wide", json={"changes": [added]}).json()
    shown = [shop.get(f"{TABLES}/wide/schemas/{number}").json() for number in (0, 1)]
    assert shown == [{member: one[member] for member in ("id", "schemaId", "schema")} for one in (first, second)]
    for number in ("2", "-1", "one", "9" * 30):
        answer = shop.get(f"{TABLES}/wide/schemas/{number}")
        problem = answer.json()
        refused = (answer.status_code, problem["errorCode"], problem["resourceType"])
        assert refused == (404, "schema_not_found", "SCHEMA")


def _rename(source: str, target: str, database: str = "shop") -> dict[str, Any]:
    return {"source": {"database": "shop", "object": source}, "destination": {"database": database, "object": target}}


def test_the_table_may_be_named_by_the_member_name(shop: TestClient) -> None:
    body = new_table() | {"identifier": {"database": "shop", "name": "wide"}}
    assert shop.post(TABLES, content=json.dumps(body).encode()).status_code == 200
    assert shop.get(TABLES).json() == {"tables": ["wide"], "nextPageToken": None}


def test_faults_of_name_columns_keys_and_options_are_reported_together(shop: TestClient) -> None:
    columns = fields_of(id="BIGNT", note="STRING")
    options = {
        "mege-engine": "x",
        "fields.nope.ignore-retract": "true",
        "merge.max-staged-rows": "many",
        "path": "/mine",
    }
    response = shop.post(TABLES, json=new_table("a/b", fields=columns, primaryKeys=["key"], options=options))
    assert response.status_code == 400
    assert set(faults_of(response)) == {
        ("/identifier/object", "illegal_name"),
        ("/schema/fields/0/type", "unknown_type"),
        ("/schema/primaryKeys/0", "unknown_column"),
        ("/schema/options/mege-engine", "unknown_option"),
        ("/schema/options/fields.nope.ignore-retract", "unknown_column"),
        ("/schema/options/merge.max-staged-rows", "illegal_option_value"),
        ("/schema/options/path", "path_not_allowed"),
    }
    assert response.json()["errorCount"] == 7
    assert response.json()["errors"][0]["detail"] in response.json()["message"], "clients show nothing else"
    assert all(fault["fix"] for fault in response.json()["errors"])
    assert shop.get(TABLES).json()["tables"] == []


def test_options_that_contradict_each_other_are_refused_with_their_own_code(shop: TestClient) -> None:
    response = shop.post(TABLES, json=new_table(options={"merge-engine": "first-row", "sequence.field": "note"}))
    assert (response.status_code, response.json()["errorCode"]) == (400, "invalid_options")


def test_options_are_not_said_to_name_unknown_columns_because_a_columns_type_is_wrong(shop: TestClient) -> None:
    columns = fields_of(id="BIGINT", total="WRONG")
    options = {"merge-engine": "aggregation", "fields.total.aggregate-function": "sum"}
    response = shop.post(TABLES, json=new_table(fields=columns, options=options))
    assert faults_of(response) == [("/schema/fields/1/type", "unknown_type")]


NOT_SHOWN = [
    ({"comment": 5}, "/schema/comment"),
    ({"fields": [{"name": "id", "type": "INT", "description": 5}]}, "/schema/fields/0/description"),
    ({"fields": fields_of(id="INT", **{"x\0": "INT"})}, "/schema/fields/1/name"),
    ({"options": {"a\ud800": "x"}}, "/schema/options"),
    ({"comment": "half \ud800 pair"}, "/schema/comment"),
    (
        {"fields": [{"name": "id", "type": "INT"}, {"name": "d", "type": "ARRAY<" * 60 + "INT" + ">" * 60}]},
        "/schema/fields/1/type",
    ),
]


def test_what_no_answer_could_show_again_is_not_stored(shop: TestClient) -> None:
    for change, pointer in NOT_SHOWN:
        response = shop.post(TABLES, content=json.dumps(new_table(**change)).encode())
        assert response.status_code == 400, change
        assert pointer in [fault["pointer"] for fault in response.json()["errors"]], change
        assert shop.get(TABLES).json()["tables"] == [], change


def test_options_that_clients_echo_are_not_stored(create: Create) -> None:
    echoed = dict.fromkeys(["owner", "createdAt", "createdBy", "updatedAt", "updatedBy"], "1")
    assert create(options={**echoed, "bucket": "1"})["schema"]["options"] == {"bucket": "1"}


def test_validate_only_reports_faults_and_stores_nothing(shop: TestClient) -> None:
    fine = shop.post(f"{TABLES}?validateOnly=true", json=new_table())
    wrong = shop.post(f"{TABLES}?validateOnly=true", json=new_table(primaryKeys=["key"]))
    assert (fine.status_code, fine.json()["violations"]) == (200, [])
    assert (wrong.status_code, faults_of(wrong)) == (400, [("/schema/primaryKeys/0", "unknown_column")])
    assert shop.get(TABLES).json()["tables"] == []


def test_an_identifier_in_another_database_than_the_path_is_refused(shop: TestClient) -> None:
    shop.post(DATABASES, json={"name": "other"})
    response = shop.post(f"{DATABASES}/other/tables", json=new_table())
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/identifier/database")


def test_partition_keys_within_the_primary_key_are_kept(create: Create, shop: TestClient) -> None:
    assert create(partitionKeys=["id"])["schema"]["partitionKeys"] == ["id"]
    refused = shop.post(TABLES, json=new_table("other", partitionKeys=["note"]))
    assert faults_of(refused) == [("/schema/partitionKeys/0", "partition_key_outside_primary_key")]


def test_names_are_distinguished_whether_the_database_or_the_table_is_missing(shop: TestClient) -> None:
    table = shop.get(f"{TABLES}/nothing").json()
    database = shop.get(f"{DATABASES}/nowhere/tables/nothing").json()
    created = shop.post(
        f"{DATABASES}/nowhere/tables", json=new_table() | {"identifier": {"database": "nowhere", "object": "t"}}
    )
    assert (table["resourceType"], table["resourceName"], table["code"]) == ("TABLE", "nothing", 404)
    assert (database["resourceType"], database["resourceName"]) == ("DATABASE", "nowhere")
    assert (created.status_code, created.json()["resourceType"]) == (404, "DATABASE")


def test_a_plus_in_the_database_and_in_the_table_are_read_each_for_itself(client: TestClient) -> None:
    client.post(DATABASES, json={"name": "a b"})
    body = new_table() | {"identifier": {"database": "a b", "object": "a+b"}}
    assert client.post(f"{DATABASES}/a+b/tables", json=body).status_code == 200
    assert client.get(f"{DATABASES}/a+b/tables/a%2Bb").json()["name"] == "a+b"
    assert client.get(f"{DATABASES}/a+b/tables/a+b").status_code == 404


def test_an_encoded_slash_never_reaches_another_table(wide: object, shop: TestClient) -> None:
    assert shop.get(f"{DATABASES}/x%2Ftables/wide").status_code == 404
    assert shop.get(f"{TABLES}/wide%2Fx").status_code == 404


def test_tables_are_listed_by_pages_patterns_and_type(create: Create, shop: TestClient) -> None:
    for name in ("c", "a1", "a2"):
        create(name)
    first = shop.get(TABLES, params={"maxResults": 2}).json()
    assert first["tables"] == ["a1", "a2"]
    second = shop.get(TABLES, params={"maxResults": 2, "pageToken": first["nextPageToken"]}).json()
    assert second == {"tables": ["c"], "nextPageToken": None}
    assert shop.get(TABLES, params={"tableNamePattern": "a%"}).json()["tables"] == ["a1", "a2"]
    assert shop.get(TABLES, params={"tableType": "table"}).json()["tables"] == ["a1", "a2", "c"]
    assert shop.get(TABLES, params={"tableType": "iceberg-table"}).json() == {"tables": [], "nextPageToken": None}


def test_table_details_are_the_tables_themselves(create: Create, shop: TestClient) -> None:
    tables = [without_warnings(create(name)) for name in ("a", "b")]
    body = shop.get(f"{DATABASES}/shop/table-details", params={"maxResults": 1}).json()
    assert body["tableDetails"] == tables[:1]
    rest = shop.get(f"{DATABASES}/shop/table-details", params={"pageToken": body["nextPageToken"]}).json()
    assert rest == {"tableDetails": tables[1:], "nextPageToken": None}


def test_a_rename_moves_a_table_to_another_database(create: Create, shop: TestClient) -> None:
    table = create("wide")
    shop.post(DATABASES, json={"name": "other"})
    response = shop.post("/v1/catalog/tables/rename", json=_rename("wide", "moved", "other"))
    assert (response.status_code, response.content) == (200, b"")
    moved = shop.get(f"{DATABASES}/other/tables/moved").json()
    assert (moved["id"], moved["path"]) == (table["id"], table["path"])
    assert shop.get(f"{TABLES}/wide").status_code == 404


def test_a_rename_is_refused_where_it_cannot_end_well(create: Create, shop: TestClient) -> None:
    create("a")
    create("b")
    path = "/v1/catalog/tables/rename"
    taken, illegal = shop.post(path, json=_rename("a", "b")), shop.post(path, json=_rename("a", "b$x"))
    gone, nowhere = shop.post(path, json=_rename("z", "y")), shop.post(path, json=_rename("a", "y", "nowhere"))
    assert (taken.status_code, taken.json()["resourceType"]) == (409, "TABLE")
    assert (illegal.status_code, faults_of(illegal)) == (400, [("/destination/object", "reserved_name")])
    assert (gone.status_code, gone.json()["resourceType"]) == (404, "TABLE")
    assert (nowhere.status_code, nowhere.json()["resourceType"]) == (404, "DATABASE")
    assert shop.get(TABLES).json()["tables"] == ["a", "b"]


def test_a_dropped_table_takes_its_files_with_it(create: Create, shop: TestClient) -> None:
    kept, dropped = (Path(unquote(urlparse(create(name)["path"]).path)) for name in ("kept", "wide"))
    for folder in (kept, dropped):
        (folder / "staging").mkdir(parents=True)
        (folder / "staging" / "batch.arrow").write_bytes(b"rows")
    response = shop.delete(f"{TABLES}/wide")
    assert (response.status_code, response.content) == (200, b"")
    assert shop.get(TABLES).json()["tables"] == ["kept"]
    assert kept.exists()
    assert not dropped.exists()


def test_a_table_whose_files_cannot_be_removed_is_dropped_all_the_same(create: Create, shop: TestClient) -> None:
    folder = Path(unquote(urlparse(create("wide")["path"]).path))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_bytes(b"a file where a folder should be: it cannot be deleted as one")
    assert shop.delete(f"{TABLES}/wide").status_code == 200
    assert shop.get(f"{TABLES}/wide").status_code == 404


def test_a_service_whose_spark_is_missing_is_ready_and_says_so(app: FastAPI, client: TestClient) -> None:
    parts = {"status": "ok", "catalog": True, "warehouse": True}
    assert client.get("/readyz").json() == {**parts, "spark": True, "reasons": {}}  # it has no worker that merges
    app.state.parts = replace(app.state.parts, spark_ready=lambda: False)
    response = client.get("/readyz")
    assert response.json() == {**parts, "spark": False, "reasons": {"spark": "it does not answer"}}
    assert (response.status_code, response.headers.get("retry-after")) == (200, None)


def test_a_lost_catalog_ends_readiness_but_not_health(client: TestClient, tmp_path: Path) -> None:
    for file in tmp_path.glob("catalog.sqlite*"):
        file.unlink()
    reported = client.get("/readyz").json()
    assert (reported["status"], reported["catalog"], reported["warehouse"], reported["spark"]) == (
        "unavailable",
        False,
        True,
        True,
    )
    assert list(reported["reasons"]) == ["catalog"]
    assert (client.get("/healthz").status_code, client.get("/healthz").json()) == (200, {"status": "ok"})
