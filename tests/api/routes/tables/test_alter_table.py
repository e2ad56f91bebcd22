"""``POST {table}`` with changes, as Paimon's clients send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.tables.tables import Tables
from app.core.alter.changes import ACTIONS
from app.core.errors import Conflict
from app.core.table.history import NewBatch, Table
from app.core.table.schema import TableSchema
from app.kernel.tasks import Result
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from tests.api.conftest import DATABASES, TABLES, Create, Merge, faults_of, fields_of
from tests.catalog.builders import add_batch
from tests.services.builders import run_next_merge
from tests.services.executor import PythonExecutor

WIDE = f"{TABLES}/wide"
FIELDS = fields_of(id="BIGINT NOT NULL", note="STRING", n="INT")
COMMENT = {"action": "updateComment", "comment": "new"}
QUICK = {"action": "setOption", "key": "merge.max-staleness", "value": "5 s"}
ADD = {"action": "addColumn", "fieldNames": ["more"], "dataType": "INT"}
DROP = {"action": "dropColumn", "fieldNames": ["n"]}
DEEP = {"type": "ARRAY", "element": "ARRAY<" * 50 + "INT" + ">" * 50}


@pytest.fixture
def wide(create: Create, shop: TestClient) -> TestClient:
    """A client of a catalog with the table ``wide``: a key ``id``, ``note`` and ``n``."""
    create(fields=FIELDS)
    return shop


def alter(client: TestClient, *changes: Any, **params: str) -> Any:
    return client.post(WIDE, json={"changes": changes}, params=params)


def table(client: TestClient) -> dict[str, Any]:
    shown: dict[str, Any] = client.get(WIDE).json()
    return shown


def stage(client: TestClient) -> str:
    answer = client.post(f"{WIDE}/batches", json={"records": [{"id": 1, "n": 7}]})
    assert answer.status_code == 202
    batch: str = answer.json()["id"]
    return batch


def test_an_altered_table_is_answered_as_it_is_shown(wide: TestClient) -> None:
    before = table(wide)
    answer = alter(wide, ADD, COMMENT, {"action": "renameColumn", "fieldNames": ["note"], "newName": "text"})
    assert answer.status_code == 200
    assert answer.json() == table(wide) | {"warnings": []}
    assert answer.json()["schemaId"] == 1
    assert answer.json()["schema"] == before["schema"] | {
        "fields": [
            FIELDS[0],
            {"id": 1, "name": "text", "type": "STRING"},
            FIELDS[2],
            {"id": 3, "name": "more", "type": "INT"},
        ],
        "comment": "new",
    }
    assert answer.json()["updatedAt"] >= before["updatedAt"]


def test_what_lookups_keep_of_a_table_is_not_shown_after_a_change(wide: TestClient) -> None:
    for change in (ADD, COMMENT):
        wide.get(f"{WIDE}/rows", params={"key": 1})
        before = wide.get(WIDE)
        answer = alter(wide, change)
        assert answer.json() == table(wide) | {"warnings": []}
        assert wide.get(WIDE, headers={"If-None-Match": before.headers["etag"]}).status_code == 200
    wide.get(f"{WIDE}/rows", params={"key": 1})
    assert wide.delete(WIDE).status_code == 200
    assert wide.get(WIDE).status_code == 404


def test_changes_that_change_nothing_make_no_new_schema(wide: TestClient) -> None:
    assert alter(wide).json()["schemaId"] == 0
    assert alter(wide, QUICK, {"action": "removeOption", "key": QUICK["key"]}).json()["schemaId"] == 0


def test_every_fault_is_reported_with_its_fix(wide: TestClient) -> None:
    wrong = {"action": "setOption", "key": "sequence.feld", "value": "n"}
    unstorable = {"action": "updateComment", "comment": "a\0b"}
    before = table(wide)
    answer = alter(wide, ADD, wrong, {"action": "explode"}, unstorable, {"action": "updateComment", "comment": 5})
    assert (answer.status_code, answer.json()["code"], table(wide)) == (400, 400, before)
    assert faults_of(answer) == [
        ("/changes/2/action", "unknown_action"),
        ("/changes/4/comment", "not_text"),
        ("/changes/1/value", "unknown_option"),
        ("/changes/3/comment", "illegal_text"),
    ]
    assert answer.json()["errorCount"] == 4
    assert all(fault["fix"] for fault in answer.json()["errors"])
    assert "unknown action 'explode'" in answer.json()["message"]


@pytest.mark.parametrize(
    ("members", "place", "code"),
    [
        ({"fieldNames": ["a\0"], "dataType": "INT"}, "fieldNames/0", "illegal_text"),
        ({"fieldNames": ["a"], "dataType": DEEP}, "dataType", "nested_too_deeply"),
    ],
)
def test_an_unstorable_column_is_refused(wide: TestClient, members: dict[str, Any], place: str, code: str) -> None:
    answer = alter(wide, {"action": "addColumn", **members})
    assert (answer.status_code, faults_of(answer)) == (400, [(f"/changes/0/{place}", code)])


def test_paimons_clients_are_reported_which_column_is_missing_or_exists_unless_there_are_other_faults(
    wide: TestClient,
) -> None:
    missing = alter(wide, {"action": "dropColumn", "fieldNames": ["nope"]}).json()
    exists = alter(wide, {"action": "addColumn", "fieldNames": ["note"], "dataType": "INT"}).json()
    assert (missing["code"], missing["resourceType"], missing["resourceName"]) == (400, "COLUMN", "nope")
    assert (exists["code"], exists["resourceType"], exists["resourceName"]) == (409, "COLUMN", "note")
    assert (missing["errorCode"], exists["errorCode"]) == ("column_not_found", "column_already_exists")

    answer = alter(wide, {"action": "dropColumn", "fieldNames": ["nope"]}, ADD | {"fieldNames": ["note"]})
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "invalid_schema")


def test_what_is_missing_is_the_database_or_the_table(wide: TestClient) -> None:
    for path, kind in ((f"{TABLES}/nope", "TABLE"), (f"{DATABASES}/nope/tables/wide", "DATABASE")):
        for query in ("", "?validateOnly=true"):
            answer = wide.post(path + query, json={"changes": [COMMENT]})
            assert (answer.status_code, answer.json()["resourceType"]) == (404, kind)


NO_LISTS = [{}, {"changes": None}, {"changes": {"action": "x"}}, {"changes": "x"}, []]


def test_a_body_without_a_list_of_changes_is_refused(wide: TestClient) -> None:
    for body in NO_LISTS:
        assert wide.post(WIDE, json=body).status_code == 400, body


def test_validate_only_tells_the_same_faults_and_stores_nothing(wide: TestClient) -> None:
    before = table(wide)
    fine = alter(wide, ADD, COMMENT, validateOnly="true")
    assert (fine.status_code, fine.json()["violations"]) == (200, [])
    for wrong in ({"action": "dropPrimaryKey"}, {"action": "dropColumn", "fieldNames": ["nope"]}):
        reported, done = alter(wide, wrong, validateOnly="true"), alter(wide, wrong)
        assert (reported.status_code, reported.json()["errors"]) == (done.status_code, done.json()["errors"])
    assert table(wide) == before


def test_a_table_is_no_longer_empty_once_a_batch_was_accepted(wide: TestClient, merge: Merge) -> None:
    engine = {"action": "setOption", "key": "merge-engine", "value": "partial-update"}
    batch = stage(wide)
    assert faults_of(alter(wide, engine)) == [("/changes/0/value", "immutable_option")]
    assert faults_of(alter(wide, engine, validateOnly="true")) == [("/changes/0/value", "immutable_option")]
    wide.delete(f"{WIDE}/batches/{batch}")
    assert faults_of(alter(wide, engine)) == [("/changes/0/value", "immutable_option")]
    stage(wide)
    merge()
    assert faults_of(alter(wide, engine)) == [("/changes/0/value", "immutable_option")]


WIDEN = {"action": "updateColumnType", "fieldNames": ["n"], "newDataType": "BIGINT"}
STAGED_CHANGES = [
    {"action": "setOption", "key": "sequence.field", "value": "n"},
    {"action": "setOption", "key": "ignore-delete", "value": "true"},
]


@pytest.mark.parametrize("change", STAGED_CHANGES)
def test_staged_batches_are_folded_by_their_own_rules(wide: TestClient, merge: Merge, change: dict[str, Any]) -> None:
    stage(wide)
    before = table(wide)
    refused = alter(wide, COMMENT, change)
    body = refused.json()
    assert (refused.status_code, body["code"], body["errorCode"]) == (409, 409, "table_has_staged_batches")
    assert (body["resourceType"], body["resourceName"]) == ("TABLE", "wide")
    assert table(wide) == before
    assert alter(wide, change, validateOnly="true").status_code == 200
    merge()
    assert alter(wide, COMMENT, change).status_code == 200


def test_a_meaning_that_comes_back_is_another_epoch(create: Create, shop: TestClient, merge: Merge) -> None:
    of = "fields.n.aggregate-function"
    options = {"merge-engine": "aggregation", "sequence.field": "s", "fields.n.ignore-retract": "true"}
    create(fields=fields_of(id="BIGINT NOT NULL", s="INT", n="INT"), options=options | {of: "first_value"})
    merge({"id": 1, "s": 5, "n": 1}, {"id": 1, "s": 9, "n": 2})
    for function in ("last_value", "first_value"):
        assert alter(shop, {"action": "setOption", "key": of, "value": function}).status_code == 200
    shop.post(f"{WIDE}/batches", json={"records": [{"id": 1, "s": 7, "n": 3}]})
    assert shop.get(f"{WIDE}/rows?key=1").json()["n"] == 3
    merge()
    assert shop.get(f"{WIDE}/rows?key=1&consistency=merged").json()["n"] == 3


RENAME = {"action": "renameColumn", "fieldNames": ["n"], "newName": "m"}
DEFAULT = {"action": "updateColumnDefaultValue", "fieldNames": ["note"], "newDefaultValue": "none"}


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ([ADD], {"id": 1, "note": None, "n": 7, "more": None}),
        ([DROP], {"id": 1, "note": None}),
        ([RENAME], {"id": 1, "note": None, "m": 7}),
        ([RENAME, ADD | {"fieldNames": ["n"]}], {"id": 1, "note": None, "m": 7, "n": None}),
        ([DEFAULT], {"id": 1, "note": None, "n": 7}),
        ([WIDEN], {"id": 1, "note": None, "n": 7}),
        ([WIDEN | {"newDataType": "DECIMAL(12, 2)"}], {"id": 1, "note": None, "n": "7.00"}),
        ([WIDEN | {"newDataType": "DOUBLE"}, RENAME], {"id": 1, "note": None, "m": 7.0}),
    ],
)
def test_columns_may_come_go_and_widen_while_batches_are_staged(
    wide: TestClient, merge: Merge, changes: list[dict[str, Any]], row: dict[str, Any]
) -> None:
    stage(wide)
    assert alter(wide, *changes).status_code == 200
    assert wide.get(f"{WIDE}/rows?key=1&consistency=latest").json() == row
    merge()
    assert wide.get(f"{WIDE}/rows?key=1").json() == row


@pytest.mark.parametrize(
    "change",
    [
        COMMENT,
        QUICK,
        {"action": "setOption", "key": "num-sorted-run.compaction-trigger", "value": "9"},
        {"action": "setOption", "key": "bucket", "value": "9"},
        {"action": "updateColumnComment", "fieldNames": ["n"], "newComment": "how many"},
        {"action": "updateColumnPosition", "move": {"fieldName": "n", "type": "FIRST"}},
    ],
)
def test_changes_of_no_row_need_not_wait_for_a_merge(wide: TestClient, merge: Merge, change: dict[str, Any]) -> None:
    stage(wide)
    assert alter(wide, change).json()["schemaId"] == 1
    merge()
    assert wide.get(f"{WIDE}/rows?key=1").json() == {"id": 1, "note": None, "n": 7}


class Altering(PythonExecutor):
    """Alters the table while it merges."""

    def __init__(self, client: TestClient) -> None:
        super().__init__()
        self.client = client
        self.answers: list[int] = []

    def merge(self, *arguments: Any, **named: Any) -> list[Result]:
        later = {"action": "setOption", "key": "sequence.field", "value": "n"}
        self.answers += [alter(self.client, change).status_code for change in (later, WIDEN, ADD)]
        return super().merge(*arguments, **named)


def test_a_merge_that_runs_keeps_the_schema_it_began_with(app: FastAPI, wide: TestClient) -> None:
    stage(wide)
    wide.post(f"{WIDE}/merges")
    parts: Parts = app.state.parts
    executor = Altering(wide)
    assert run_next_merge(MergeSite(parts.database, parts.warehouse, executor, 600), "worker")
    assert executor.answers == [409, 200, 200]
    assert wide.get(f"{WIDE}/rows?key=1").json()["n"] == 7


def test_alters_at_the_same_time_are_all_done_or_refused_and_none_is_lost(wide: TestClient) -> None:
    def add(number: int) -> int:
        change = {"action": "addColumn", "fieldNames": [f"c{number}"], "dataType": "INT"}
        status: int = alter(wide, change).status_code
        return status

    with ThreadPoolExecutor(8) as threads:
        statuses = [*threads.map(add, range(16))]
    fields = table(wide)["schema"]["fields"][3:]
    assert set(statuses) <= {200, 409}
    assert {f"c{number}" for number, status in enumerate(statuses) if status == 200} == {f["name"] for f in fields}
    assert sorted(field["id"] for field in fields) == [*range(3, 3 + len(fields))]


@dataclass(frozen=True)
class ContestedTables(Tables):
    """Tables where somebody else is faster: ``happens`` before the alter has the table's lock."""

    happens: Callable[[str], object]

    def alter(self, table_id: str, expected_schema_id: int, schema: TableSchema, by: str = "") -> Table:
        self.happens(table_id)
        return super().alter(table_id, expected_schema_id, schema, by)


class BusyCatalog:
    """A catalog whose transactions meet ``happens``."""

    def __init__(self, catalog: CatalogDatabase, happens: Callable[[Repository, str], object]) -> None:
        self.catalog = catalog
        self.happens = happens

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        with self.catalog.transaction(wakes=wakes) as repository:
            happens = partial(self.happens, repository)
            contested = ContestedTables(repository.transaction, repository.databases, happens)
            yield replace(repository, tables=contested)


def _first_batch(repository: Repository, table_id: str) -> object:
    return add_batch(repository, table_id, NewBatch("b", 0, "b.parquet", 1, 0, 1, "f"))


def _other_alter(repository: Repository, table_id: str) -> object:
    return repository.tables.alter(table_id, 0, repository.tables.schema_at(table_id, 0))


@pytest.mark.parametrize(
    ("happens", "change", "says"),
    [(_first_batch, QUICK, "first batch"), (_first_batch, ADD, "first batch"), (_other_alter, QUICK, "someone else")],
)
def test_the_faster_one_wins(app: FastAPI, wide: TestClient, happens: Any, change: dict[str, Any], says: str) -> None:
    before = table(wide)
    parts: Parts = app.state.parts
    with pytest.raises(Conflict, match=says):
        alter_table(cast("Any", BusyCatalog(parts.database, happens)), ("shop", "wide"), [change])
    assert table(wide) == before
    assert wide.get(f"{WIDE}/batches").json()["batches"] == []


def test_rows_are_read_by_id_after_a_rename_and_a_column_of_the_old_name(wide: TestClient, merge: Merge) -> None:
    stage(wide)
    merge()
    rename = {"action": "renameColumn", "fieldNames": ["n"], "newName": "total"}
    alter(wide, rename, {"action": "addColumn", "fieldNames": ["n"], "dataType": "STRING"})
    assert wide.get(f"{WIDE}/rows?key=1").json() == {"id": 1, "note": None, "total": 7, "n": None}


def test_the_openapi_document_shows_every_action_with_its_members(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    route = document["paths"]["/v1/catalog/databases/{database}/tables/{table}"]["post"]
    assert route["operationId"] == "alterTable"
    schemas = document["components"]["schemas"]
    assert schemas["AlterTable"]["properties"]["changes"]["items"] == {"$ref": "#/components/schemas/SchemaChange"}
    shapes = schemas["SchemaChange"]["discriminator"]["mapping"]
    assert shapes.keys() == ACTIONS.keys()
    for name, action in ACTIONS.items():
        shape = schemas[shapes[name].rsplit("/", 1)[-1]]
        assert shape["description"] == action.meaning
        assert shape["properties"].keys() == {"action", *(member.name for member in action.members)}
        assert set(shape["required"]) == {"action", *(m.name for m in action.members if m.needed)}
