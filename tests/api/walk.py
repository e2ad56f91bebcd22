"""Every operation of the OpenAPI document, and a catalog in which each of them finds what its path names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.core.errors import FaultCode, Violation
from app.core.plan.records.faulty_events import FaultyEvent
from app.core.table.options.entries import Consistency
from app.main import create_app
from app.services.access.tokens import create_token
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.api.openapi import served
from tests.builders import settings_with
from tests.services.builders import merge_staged

TABLE = f"{TABLES}/wide"
METHODS = ("get", "post", "put", "patch", "delete")
DOCUMENT = served()["paths"]
OPERATIONS = [(path, method) for path, item in DOCUMENT.items() for method in item if method in METHODS]
READS = [path for path, method in OPERATIONS if method == "get"]
BODIES: dict[str, Any] = {
    "createDatabase": {"name": "other"},
    "createTable": new_table("other"),
    "validateTable": new_table("other"),
    "validateDdl": {"ddl": "CREATE TABLE declared (id INT, PRIMARY KEY (id) NOT ENFORCED)"},
    "validateChanges": {"changes": []},
    "createTablesFromDdl": {"ddl": "CREATE TABLE declared (id INT, PRIMARY KEY (id) NOT ENFORCED)"},
    "renameTable": {
        "source": {"database": "shop", "object": "wide"},
        "destination": {"database": "shop", "object": "renamed"},
    },
    "alterTable": {"changes": []},
    "alterDatabase": {"updates": {"a": "b"}},
    "postBatch": {"records": [{"id": 2}]},
    "postDatabaseBatches": {"tables": {"wide": {"records": [{"id": 2}]}}},
    "putRow": {"note": "a"},
    "putRowByPath": {"note": "a"},
    "patchRow": {"note": "b"},
    "patchRowByPath": {"note": "b"},
    "simulateRows": {"records": [{"id": 2}]},
    "simulateMerge": {"schema": new_table()["schema"], "records": [{"id": 2}]},
    "batchGetRows": {"keys": [{"id": 1}]},
    "createTag": {"tagName": "v2"},
    "rollbackTable": {"snapshot": 1},
    "createToken": {"name": "till", "role": "read", "on": ["shop.*"], "expires": "2999-12-31"},
    "forgetRows": {"keys": [{"id": 9}]},
    "dropPartitions": {"specs": [{"day": "2026-01-01"}]},
}
# What ends what other operations need, in this order.
LAST = (
    *("withdrawSetAsideEvent", "deleteBatch", "deleteTag", "rollbackTable", "renameTable", "dropTable", "dropDatabase"),
)
Fill = Callable[[str], str]


@contextmanager
def filled_catalog(folder: Path) -> Iterator[tuple[TestClient, Fill]]:
    """A client that may do everything, and what puts a table with two merged batches, a tag and a token behind paths
    of the OpenAPI document.
    """
    # Merged, so that what one operation of the walk stages does not change what the next one answers.
    app = create_app(settings_with(KEYFOLD_DATA=folder, workers=0, lookup_consistency=Consistency.MERGED))
    with TestClient(app, LOOPBACK, raise_server_exceptions=False) as client:
        parts: Parts = app.state.parts
        client.headers["Authorization"] = f"Bearer {create_token(parts.database, 'walk')}"
        create_token(parts.database, "spare")
        client.post(DATABASES, json={"name": "shop"})
        created = client.post(TABLES, json=new_table(options={"num-sorted-run.compaction-trigger": "99"})).json()
        ordered = client.post(TABLES, json=new_table("ordered", options={"sequence.field": "note"})).json()
        for _ in range(2):
            batch = client.post(f"{TABLE}/batches", json={"records": [{"id": 1}]}).json()["id"]
            merge_staged(parts.database, parts.warehouse, created["id"])
        client.post(f"{TABLE}/tags", json={"tagName": "v1"})
        forgetting = client.post(f"{TABLE}/rows:forget", json={"keys": [{"id": 8}]}).json()["id"]
        names = {
            "forgetting_id": forgetting,
            "event_id": _set_aside(parts, ordered["id"]),
            "database": "shop",
            "table": "wide",
            "table_id": created["id"],
            "batch_id": batch,
            "merge_id": client.get(f"{TABLE}/merges").json()["merges"][0]["id"],
            "version": "1",
            "tag": "v1",
            "schema": "0",
            "key": "1",
            "name": "spare",
        }
        client.get(f"{TABLE}/rows/1").raise_for_status()
        assert parts.images.asking.settled(60)  # stats count images: none is left to be made between two reads
        yield client, lambda path: path.format_map(names | ({"table": "ordered"} if "set-aside" in path else {}))


def _set_aside(parts: Parts, table_id: str) -> str:
    """The id of an event that the table keeps."""
    fault = Violation("/id", FaultCode.WRONG_TYPE, "column 'id': text, and it is an INT", "send a number", column="id")
    event = FaultyEvent(0, "debezium-json", "", '{"op": "c", "after": {"id": "x"}}', [fault])
    with parts.database.transaction() as repository:
        repository.set_aside_events.add(table_id, "0" * 32, "walk", [event])
        [kept] = repository.set_aside_events.page(table_id, limit=1)
    return kept.id


def query(path: str) -> dict[str, str]:
    """The parameters without which the route says nothing."""
    return {"key": "1"} if path.endswith(("/rows", "/rows:explain")) else {}


def headers_of(answer: Any) -> dict[str, str]:
    """All but the id, which every request has of its own."""
    return {name: value for name, value in answer.headers.items() if name != "x-request-id"}
