"""A request to every operation, in an order in which each finds what it asks for: examples of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.api.openapi import served
from tests.api.walk import METHODS

ORDERS = {
    "fields": [
        {"name": "id", "type": "BIGINT NOT NULL"},
        {"name": "edited", "type": "TIMESTAMP(3)"},
        {"name": "status", "type": "STRING"},
        {"name": "city", "type": "STRING"},
        {"name": "paid", "type": "DECIMAL(10, 2)"},
    ],
    "primaryKeys": ["id"],
    "options": {
        "merge-engine": "partial-update",
        "fields.edited.sequence-group": "status,city,paid",
        "fields.paid.aggregate-function": "sum",
        "record.absent-columns": "unchanged",
        "changelog-producer": "lookup",
    },
}
NEW = {"identifier": {"database": "shop", "object": "orders"}, "schema": ORDERS}
DDL = """CREATE TABLE payments (
  id BIGINT NOT NULL, booked DATE NOT NULL, method STRING,
  PRIMARY KEY (id, booked) NOT ENFORCED
) PARTITIONED BY (booked)"""
RECORDS = [
    {"id": 7, "edited": "2026-03-01T10:00:00", "status": "new", "city": "Lyon", "paid": "20.00"},
    {"id": 8, "edited": "2026-03-01T10:02:00", "status": "new", "city": "Oslo"},
]
LATE = [{"id": 7, "edited": "2026-03-01T09:58:00", "status": "draft", "paid": "5.00"}]
ADD = {"changes": [{"action": "addColumn", "fieldNames": ["note"], "dataType": "STRING", "comment": "by hand"}]}


@dataclass(frozen=True)
class Step:
    """One request. ``merged``: what is staged is merged after it. ``told``: it is no operation's example."""

    operation: str
    request: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    merged: bool = False
    reported: bool = True


PAYMENTS = {"table": "payments"}
PAID = [{"id": 1, "booked": "2026-03-01", "method": "card"}]
FAULTY = {"op": "c", "before": None, "after": {"id": 11, "edited": "2026-03-01T11:00:00", "paid": "none"}}
ASIDE = {"format": "debezium-json", "onFault": "set-aside"}
EDIT = {"edited": "2026-03-01T11:00:00", "status": "packed"}
STORY: Sequence[Step] = (
    Step("getHealth"),
    Step("getReadiness"),
    Step("getConfig"),
    Step("createDatabase", {"name": "shop", "options": {"owner": "sales"}}),
    Step("listDatabases"),
    Step("getDatabase"),
    Step("alterDatabase", {"removals": ["owner"], "updates": {"team": "sales"}}),
    Step("validateTable", NEW),
    Step("createTable", NEW),
    Step("validateDdl", {"ddl": DDL}),
    Step("createTablesFromDdl", {"ddl": DDL}),
    Step("listTables"),
    Step("listTableDetails"),
    Step("getTable"),
    Step("getSchema"),
    Step("getTableById"),
    Step("getTableDdl", parameters={"dialect": "flink"}),
    Step("getRules"),
    Step("getTableDocument"),
    Step("simulateMerge", {"schema": ORDERS, "records": [*RECORDS[:1], *LATE]}),
    Step("postBatch", {"records": RECORDS}, {"Idempotency-Key": "till-31"}, merged=True),
    Step("simulateRows", {"records": LATE}),
    Step("postBatch", {"records": LATE}, merged=True, reported=False),
    Step("getMergeChanges", parameters={"sample": 1}),
    Step("getLateness"),
    Step("getRow", parameters={"key": ["7"]}),
    Step("getRowByPath", parameters={"key": "8", "columns": "status,city"}),
    Step("explainRow", parameters={"key": ["7"], "column": ["status", "city"]}),
    Step("explainRowByPath", parameters={"key": "8", "column": ["city"], "asOf": "1"}),
    Step("batchGetRows", {"keys": [{"id": 8}, {"id": 9}]}, {"columns": "id,city"}),
    Step("scanRows", parameters={"filter": ["city.eq.Oslo"], "limit": 100}),
    Step("countRows", parameters={"filter": ["status.eq.new"]}),
    Step("getChangelog", parameters={"fromSnapshot": 1, "maxResults": 10}),
    Step("putRow", EDIT, {"key": ["9"]}),
    Step("putRowByPath", EDIT, {"key": "9"}),
    Step("patchRow", {"city": None, "edited": "2026-03-01T12:00:00"}, {"key": ["9"]}),
    Step("patchRowByPath", {"paid": "1.50"}, {"key": "9"}),
    Step("deleteBatch"),
    Step("deleteRow", parameters={"key": ["9"]}),
    Step("deleteRowByPath", parameters={"key": "9"}),
    Step("listBatches", parameters={"maxResults": 2}),
    Step("getBatch"),
    Step("retryBatch"),
    Step("postMerge"),
    Step("getMerge"),
    Step("cancelMerge"),
    Step("listMerges", parameters={"maxResults": 1}),
    Step("postCompaction", {"full": True}),
    Step("listSnapshots", parameters={"maxResults": 1}),
    Step("getVersionSnapshot", parameters={"version": "1"}),
    Step("getSnapshotChanges", parameters={"version": "LATEST", "since": "1", "sample": 1}),
    Step("getTableSnapshot"),
    Step("forgetRows", {"keys": [{"id": 8}], "reference": "ticket 4711"}),
    Step("listForgettings"),
    Step("getForgetting"),
    Step("createTag", {"tagName": "v1", "snapshotId": 1, "timeRetained": "30 d"}),
    Step("postBatch", FAULTY, ASIDE, reported=False),
    Step("listSetAsideEvents"),
    Step("getSetAsideEvent"),
    Step("retrySetAsideEvents"),
    Step("withdrawSetAsideEvent"),
    Step("listTags"),
    Step("getTag"),
    Step("listFiles"),
    Step("getTableDelta"),
    Step("getTableIceberg"),
    Step("listDamage"),
    Step("getTableStats"),
    Step("postDatabaseBatches", {"tables": {"orders": {"records": LATE}, "payments": {"records": PAID}}}),
    Step("postBatch", {"records": PAID}, PAYMENTS, True, reported=False),
    Step("listPartitions", parameters=PAYMENTS),
    Step("dropPartitions", {"specs": [{"booked": "2026-03-01"}]}, PAYMENTS),
    Step("validateChanges", ADD, PAYMENTS),
    Step("alterTable", ADD, PAYMENTS),
    Step("rollbackTable", {"instant": {"type": "tag", "tagName": "v1"}}),
    Step("deleteTag"),
    Step(
        "renameTable",
        {
            "source": {"database": "shop", "object": "payments"},
            "destination": {"database": "shop", "object": "receipts"},
        },
    ),
    Step("dropTable", parameters={"table": "receipts"}, reported=False),
    Step("dropTable"),
    Step("dropDatabase"),
    Step("createToken", {"name": "till", "role": "write", "on": ["shop.*"], "expires": "2099-12-31"}),
    Step("listTokens"),
    Step("revokeToken"),
)
NAMES = {"database": "shop", "table": "orders", "tag": "v1", "schema": "0", "name": "till"}
ASKED = {
    operation["operationId"]: (path, method, operation)
    for path, item in served()["paths"].items()
    for method, operation in item.items()
    if method in METHODS
}
