"""A request for every code of a fault: what provokes it, through HTTP wherever HTTP can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message

from app.api.middleware.limits import BodyLimit
from app.catalog.database import CatalogDatabase
from app.core.access import Grant, Role, TokenScope
from app.core.alter.changes import alter_schema
from app.core.alter.draft import LARGEST_FIELD_ID
from app.core.errors import FaultCode, Forbidden, Invalid, Unauthorized
from app.core.table.schema import TableSchema
from app.main import create_app
from app.services.access.token_gate import TokenGate
from app.services.access.tokens import create_token
from app.services.access.webhooks import Signed
from app.services.tables.tables import DEEPEST_TYPE
from app.settings import Settings
from tests.api.conftest import DATABASES, LOOPBACK, TABLES
from tests.api.faulty_requests import (
    NUMBERS,
    Case,
    Service,
    add,
    altered,
    asked,
    change,
    created,
    declared,
    new_table,
    options,
    posted,
    reported,
    schema,
    set_option,
    value,
)
from tests.builders import settings_with

AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}
GROUP = PARTIAL | {"fields.a.sequence-group": "b"}
A_FUNCTION = "fields.a.aggregate-function"
DEEP = "ARRAY<" * DEEPEST_TYPE + "INT" + ">" * DEEPEST_TYPE
THREE = {"a": "INT", "b": "INT", "c": "INT"}
ROW = {"r": "ROW<x INT, y INT>", "s": "ROW<x INT>"}


def _signed_wrongly(_: Service) -> Iterable[Mapping[str, Any]]:
    with pytest.raises(Unauthorized) as refused:
        Signed("", "", "").check(0)
    return [{"code": fault.code} for fault in refused.value.violations]


def _with_token(authorization: str | None, *, made: bool) -> Case:
    """Passing a gate that asks for a token; ``made`` says whether there is one."""

    def provoke(service: Service) -> Iterable[Mapping[str, Any]]:
        database = CatalogDatabase(f"sqlite:///{service.folder / f'{next(NUMBERS)}.db'}")
        database.migrate()
        if made:
            create_token(database, "ci")
        with pytest.raises(Unauthorized) as refused:
            TokenGate(database, required=True).check(authorization)
        database.close()
        return [{"code": fault.code} for fault in refused.value.violations]

    return provoke


def _expired_token(service: Service) -> Iterable[Mapping[str, Any]]:
    database = CatalogDatabase(f"sqlite:///{service.folder / f'{next(NUMBERS)}.db'}")
    database.migrate()
    sent = f"Bearer {create_token(database, 'ci', expires='1 ms')}"
    with pytest.raises(Unauthorized) as refused:
        TokenGate(database, required=True, now=lambda: float("inf")).check(sent)
    database.close()
    return [{"code": fault.code} for fault in refused.value.violations]


def _made(**wished: Any) -> Case:
    """Making a token, of which nothing comes."""
    return asked("POST", "/v1/tokens", json={"name": "ci", "role": "read", "on": ["*"]} | wished)


def _too_often(bearer: str | None) -> Case:
    """Asking a service twice that takes one request, or one failure, a minute."""

    def provoke(service: Service) -> Iterable[Mapping[str, Any]]:
        folder = service.folder / f"{next(NUMBERS)}"
        app = create_app(Settings(KEYFOLD_DATA=folder, workers=0, failures_per_minute=1, requests_per_minute=1))
        with TestClient(app, LOOPBACK) as client:
            token = create_token(app.state.parts.database, "ci")
            headers = {"Authorization": bearer.format(token)} if bearer else {}
            return reported([client.get(DATABASES, headers=headers) for _ in range(2)][1])

    return provoke


def _denied(_: Service) -> Iterable[Mapping[str, Any]]:
    with pytest.raises(Forbidden) as refused:
        Grant("ci", Role.READ, TokenScope.parse(["shop.*"])).check_table(Role.WRITE, "hr", "people")
    return [{"code": fault.code} for fault in refused.value.violations]


def _too_slow(_: Service) -> Iterable[Mapping[str, Any]]:
    sent: list[Message] = []

    async def silence() -> Message:
        await anyio.sleep(60)
        raise AssertionError

    async def keep(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        app = FastAPI()
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": "/x", "raw_path": b"/x", "headers": headers, "app": app}
        limit = BodyLimit(app, settings_with(KEYFOLD_DATA="/nowhere", silence_seconds=0.01))
        await limit({**scope, "query_string": b"", "http_version": "1.1"}, silence, keep)

    anyio.run(ask)
    body = b"".join(message.get("body", b"") for message in sent)
    return json.loads(body)["errors"]


def _no_free_id(_: Service) -> Iterable[Mapping[str, Any]]:
    table = TableSchema.from_json(schema())
    with pytest.raises(Invalid) as refused:
        alter_schema(table, [add()], highest_id=LARGEST_FIELD_ID, has_rows=False, deepest_type=50)
    return [{"code": fault.code} for fault in refused.value.violations]


TOKENS: Mapping[FaultCode, Case] = {
    FaultCode.NO_TOKEN_LEFT: _with_token(None, made=False),
    FaultCode.EXPIRED_TOKEN: _expired_token,
    FaultCode.ILLEGAL_EXPIRY: _made(expires="soon"),
    FaultCode.ILLEGAL_SCOPE: _made(on=["shop"]),
    FaultCode.MISSING_ROLE: _denied,
    FaultCode.MISSING_SCOPE: _denied,
    FaultCode.MISSING_TOKEN: _with_token(None, made=True),
    FaultCode.TOO_MANY_FAILURES: _too_often(None),
    FaultCode.TOO_MANY_REQUESTS: _too_often("Bearer {}"),
    FaultCode.UNKNOWN_TOKEN: _with_token("Bearer kf_wrong", made=True),
    FaultCode.WRONG_SIGNATURE: _signed_wrongly,
}
VALUES: Mapping[FaultCode, Case] = {
    FaultCode.BAD_DATE: value("DATE", "2024-02-30"),
    FaultCode.BAD_ROW_KIND: posted({"k": 1, "_kind": "+X"}),
    FaultCode.BAD_TIME: value("TIME", "25:00"),
    FaultCode.BAD_TIMESTAMP: value("TIMESTAMP(3)", "yesterday"),
    FaultCode.DUPLICATE_KEY: value("MAP<INT, INT>", [{"key": 1, "value": 1}, {"key": 1, "value": 2}]),
    FaultCode.MISSING_COLUMN: posted({"a": 1}),
    FaultCode.NOT_AN_OBJECT: posted(5),
    FaultCode.NOT_A_NUMBER: posted(
        {"k": 1, "v": "x"}, {"v": "STRING"}, options={"sequence.field": "v", "sequence.auto-padding": "row-kind-flag"}
    ),
    FaultCode.NOT_BASE64: value("BYTES", "?"),
    FaultCode.NOT_JSON: asked("POST", "{table}/batches", content=b"{", headers={"Content-Type": "application/json"}),
    FaultCode.NOT_UNICODE: asked(
        "POST",
        "{table}/batches",
        schema({"v": "STRING"}),
        content=b'{"records": [{"k": 1, "v": "\\ud800"}]}',
        headers={"Content-Type": "application/json"},
    ),
    FaultCode.NULL_IN_NOT_NULL: posted({"k": None}),
    FaultCode.NULL_IN_PADDED_SEQUENCE: posted(
        {"k": 1}, options={"sequence.field": "a", "sequence.auto-padding": "row-kind-flag"}
    ),
    FaultCode.OUT_OF_RANGE: value("TINYINT", 1000),
    FaultCode.REFUSED_ROW_KIND: posted({"k": 1, "_kind": "-D"}, options={"merge-engine": "first-row"}),
    FaultCode.UNFOLDABLE_VALUE: posted(
        {"k": 1, "a": "AAAA"}, {"a": "BYTES"}, options=AGGREGATION | {A_FUNCTION: "hll_sketch"}
    ),
    FaultCode.TOO_LONG: value("CHAR(2)", "abc"),
    FaultCode.TOO_MANY_DIGITS: value("DECIMAL(5, 2)", "1.234"),
    FaultCode.UNKNOWN_FIELD: posted({"k": 1, "r": {"z": 1}}, ROW),
    FaultCode.WRONG_TYPE: value("INT", "x"),
}
SCHEMAS: Mapping[FaultCode, Case] = {
    FaultCode.COLUMN_IN_TWO_GROUPS: options(GROUP | {"fields.c.sequence-group": "b"}, THREE),
    FaultCode.CONTRADICTING_OPTIONS: options({"merge-engine": "first-row", "sequence.field": "a"}),
    FaultCode.FUNCTION_OUTSIDE_GROUP: options(PARTIAL | {A_FUNCTION: "sum"}),
    FaultCode.ILLEGAL_COLUMN_TYPE: options({"rowkind.field": "a"}),
    FaultCode.ILLEGAL_DEFAULT: options({"fields.a.default-value": "one"}),
    FaultCode.ILLEGAL_FUNCTION_TYPE: options(AGGREGATION | {A_FUNCTION: "bool_or"}),
    FaultCode.ILLEGAL_KEY_TYPE: created({"l": "ARRAY<INT>"}, primaryKeys=["l"]),
    FaultCode.CLAUSE_LEFT_OUT: declared("CREATE TABLE t (k INT, PRIMARY KEY (k) NOT ENFORCED, c AS k + 1)"),
    FaultCode.CLAUSE_NOT_TAKEN: declared("CREATE TABLE t (k INT, PRIMARY KEY (k) NOT ENFORCED) LIKE s"),
    FaultCode.FOREIGN_CONNECTOR: declared(
        "CREATE TABLE t (k INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector'='kafka')"
    ),
    FaultCode.LENGTH_OF_ONE: declared("CREATE TABLE t (k INT, v VARCHAR, PRIMARY KEY (k) NOT ENFORCED)"),
    FaultCode.NOT_SQL: declared("SELECT 1"),
    FaultCode.ILLEGAL_NAME: created(name="a/b"),
    FaultCode.ILLEGAL_OPTION_VALUE: options({"merge-engine": "aggregated"}),
    FaultCode.ILLEGAL_ORDER_TYPE: options({"sequence.field": "l"}, {"l": "ARRAY<INT>"}),
    FaultCode.ILLEGAL_TEXT: created(comment="\0"),
    FaultCode.KEY_IN_GROUP: options(PARTIAL | {"fields.a.sequence-group": "k"}),
    FaultCode.KEY_WITH_DEFAULT: options({"fields.k.default-value": "1"}),
    FaultCode.MALFORMED_OPTION: options({"fields.default-value": "1"}),
    FaultCode.MISSING_OPTION: options({"sequence.snapshot-ordering": "true"}),
    FaultCode.MISSING_PARTITION_KEYS: options({"partition.expiration-time": "1 d"}),
    FaultCode.MISSING_PRIMARY_KEY: created(primaryKeys=[]),
    FaultCode.NAME_TOO_LONG: created(name="x" * 1000),
    FaultCode.NESTED_TOO_DEEPLY: created({"a": DEEP}),
    FaultCode.NOT_A_LIST: created(primaryKeys="k"),
    FaultCode.NOT_IN_DELTA: options({"delta.publish": "true"}, columns={"a": "TIME"}),
    FaultCode.NOT_IN_ICEBERG: options({"iceberg.publish": "true"}, columns={"a": "TIME"}),
    FaultCode.NOT_TEXT: created(options={"bucket": [1]}),
    FaultCode.PARTITION_KEY_OUTSIDE_PRIMARY_KEY: created(partitionKeys=["a"]),
    FaultCode.PATH_NOT_ALLOWED: options({"path": "/tmp/x"}),  # noqa: S108  # nothing is written
    FaultCode.PRIMARY_KEY_TWICE: options({"primary-key": "k"}),
    FaultCode.RESERVED_NAME: created({"_kind": "INT"}),
    FaultCode.UNKNOWN_FUNCTION: options(AGGREGATION | {A_FUNCTION: "summ"}),
    FaultCode.UNKNOWN_GROUP: options(PARTIAL | {"partial-update.remove-record-on-sequence-group": "a"}),
    FaultCode.UNKNOWN_OPTION: options({"merge-engin": "aggregation"}),
    FaultCode.UNKNOWN_TYPE: created({"a": "INTEGR"}),
    FaultCode.UNSUPPORTED_TYPE: created({"a": "TIMESTAMP(9)"}),
}
WARNINGS: Mapping[FaultCode, Case] = {
    FaultCode.ABSENT_IS_NULL: options(PARTIAL),
    FaultCode.CHANGELOG_NOT_REPAIRED: options({"changelog-producer": "input"}),
    FaultCode.CHANGES_COME_LATE: options({"changelog-producer": "full-compaction"}),
    FaultCode.COLUMN_IN_NO_GROUP: options(GROUP, THREE),
    FaultCode.EVENTS_UNORDERED: options({"events.source": "shop.orders"}),
    FaultCode.GROUP_REPLACED_WHOLE: options(PARTIAL | {"fields.a.sequence-group": "b,c"}, THREE),
    FaultCode.LATE_RECORDS_COUNT: options(GROUP | {"fields.b.aggregate-function": "sum"}),
    FaultCode.MERGES_READ_OLDER_RUNS: options({"changelog-producer": "lookup"}),
    FaultCode.NULL_NEVER_WRITTEN: options(PARTIAL),
    FaultCode.OPTION_WITHOUT_EFFECT: options({A_FUNCTION: "sum"}),
    FaultCode.POSITION_ORDERS_NOTHING: options({"fields.a.from-event": "source.lsn"}, {"a": "BIGINT"}),
}
CHANGES: Mapping[FaultCode, Case] = {
    FaultCode.COLUMN_IN_USE: altered(change("dropColumn", "a"), options={"sequence.field": "a"}),
    FaultCode.DUPLICATE_COLUMN: altered(add("a")),
    FaultCode.ILLEGAL_MOVE: altered(
        {"action": "updateColumnPosition", "move": {"fieldName": "a", "referenceFieldName": "a", "type": "AFTER"}}
    ),
    FaultCode.ILLEGAL_PATH: altered(change("dropColumn", "a", "x")),
    FaultCode.ILLEGAL_TYPE_CHANGE: altered(change("updateColumnType", "a", newDataType="TINYINT")),
    FaultCode.IMMUTABLE_OPTION: altered(set_option("primary-key", "a"), has_rows=True),
    FaultCode.KEY_COLUMN: altered(change("dropColumn", "k")),
    FaultCode.LAST_FIELD: altered(change("dropColumn", "s", "x"), columns=ROW),
    FaultCode.NESTED_COLUMN: altered(change("updateColumnDefaultValue", "r", "x", newDefaultValue="1"), columns=ROW),
    FaultCode.NO_FREE_ID: _no_free_id,
    FaultCode.NOT_BOOLEAN: altered(change("updateColumnNullability", "a", newNullability="no")),
    FaultCode.NOT_NULL_COLUMN: altered(add(kind="INT NOT NULL")),
    FaultCode.NULL_TO_NOT_NULL: altered(change("updateColumnNullability", "a", newNullability=False)),
    FaultCode.PARTITION_COLUMN: altered(
        change("renameColumn", "k", newName="n"), primaryKeys=["k"], partitionKeys=["k"]
    ),
    FaultCode.PRIMARY_KEY_NEEDED: altered({"action": "dropPrimaryKey"}),
    FaultCode.TOO_MANY_CHANGES: altered(*[set_option("bucket", "1")] * 1001),
    FaultCode.UNKNOWN_ACTION: altered({"action": "paint"}),
    FaultCode.UNKNOWN_COLUMN: altered(change("dropColumn", "zzz")),
    FaultCode.UNKNOWN_MOVE: altered(add(move={"type": "UP"})),
}
ROLLBACK = "{table}/rollback"
REQUESTS: Mapping[FaultCode, Case] = {
    FaultCode.BAD_HEADER: asked(
        "POST", "{table}/batches", json={"records": []}, headers={"Idempotency-Key": "x" * 300}
    ),
    FaultCode.WRONG_DIGEST: asked(
        "POST", "{table}/batches", json={"records": []}, headers={"Content-Digest": f"sha-256=:{'A' * 43}=:"}
    ),
    FaultCode.BOOL_PARSING: asked("POST", TABLES, params={"validateOnly": "perhaps"}, json={}),
    FaultCode.BOOL_TYPE: asked("POST", "{table}/tags", json={"tagName": "v", "ignoreIfExists": None}),
    FaultCode.CHANGED_SINCE: asked("DELETE", "{table}", headers={"If-Match": '"1"'}),
    FaultCode.CONDITION_NOT_TAKEN: asked("PUT", "{table}/rows/1", json={}, headers={"If-Match": '"1"'}),
    FaultCode.CONTRADICTING_DATABASE: asked(
        "POST", TABLES, json={"identifier": {"database": "other", "object": "t"}, "schema": schema()}
    ),
    FaultCode.CONTRADICTING_PARAMETERS: asked(
        "GET", "{table}/rows", params={"key": "1", "snapshot": "1", "consistency": "latest"}
    ),
    FaultCode.CROSS_SITE: asked("GET", DATABASES, headers={"Sec-Fetch-Site": "cross-site"}),
    FaultCode.DICT_TYPE: asked("POST", DATABASES, json={"name": "a", "options": []}),
    FaultCode.EMPTY_NAME: asked("POST", DATABASES, json={"name": ""}),
    FaultCode.EMPTY_RANGE: asked("GET", "{table}/changelog", params={"fromSnapshot": "3", "toSnapshot": "2"}),
    FaultCode.ENUM: asked("GET", "{table}/rows", params={"key": "1", "consistency": "stale"}),
    FaultCode.FOREIGN_HOST: asked("GET", DATABASES, headers={"Host": "evil.example"}),
    FaultCode.FOREIGN_ORIGIN: asked("GET", DATABASES, headers={"Origin": "https://evil.example"}),
    FaultCode.ILLEGAL_DURATION: asked("POST", "{table}/tags", json={"tagName": "v", "timeRetained": "long"}),
    FaultCode.INT_PARSING: asked("GET", DATABASES, params={"maxResults": "ten"}),
    FaultCode.INT_PARSING_SIZE: asked("GET", DATABASES, params={"maxResults": "1" * 5000}),
    FaultCode.INT_TYPE: asked("POST", ROLLBACK, json={"snapshot": "one"}),
    FaultCode.JSON_INVALID: asked("POST", DATABASES, content=b'{"name"'),
    FaultCode.LIST_TYPE: asked("POST", "{table}/partitions/drop", json={"specs": {}}),
    FaultCode.LOCATION_NOT_ALLOWED: asked("POST", DATABASES, json={"name": "a", "options": {"location": "/x"}}),
    FaultCode.MISSING: asked("POST", DATABASES, json={}),
    FaultCode.MODEL_ATTRIBUTES_TYPE: asked("POST", DATABASES, json=[]),
    FaultCode.NO_INSTANT: asked("POST", ROLLBACK, json={}),
    FaultCode.NOT_ACCEPTABLE: asked("GET", DATABASES, headers={"Accept": "text/csv"}),
    FaultCode.NOT_A_POSITION: asked("GET", "{table}/changelog", params={"pageToken": "?"}),
    FaultCode.STRING_TYPE: asked("POST", DATABASES, json={"name": 5}),
    FaultCode.TOO_LARGE: asked("POST", DATABASES, content=b" " * (2**20 + 1)),
    FaultCode.TOO_MANY: asked(
        "POST",
        TABLES,
        json={"identifier": {"database": "shop", "object": "t"}, "schema": schema(primaryKeys=["k"] * 101)},
    ),
    FaultCode.TOO_SHORT: asked("POST", "{table}/partitions/drop", json={"specs": []}),
    FaultCode.TOO_SLOW: _too_slow,
    FaultCode.UNION_TAG_INVALID: asked("POST", ROLLBACK, json={"instant": {"type": "moon"}}),
    FaultCode.UNION_TAG_NOT_FOUND: asked("POST", ROLLBACK, json={"instant": {}}),
    FaultCode.UNKNOWN_MEMBER: asked("POST", "{table}/batches", json={"records": [], "more": 1}),
    FaultCode.UNKNOWN_PARAMETER: asked("GET", DATABASES, params={"maxResult": "1"}),
    FaultCode.CONTRADICTING_KEY: asked("PUT", "{table}/rows/1", json={"k": 2}),
    FaultCode.UNREADABLE_BODY: asked(
        "POST", "{table}/batches", content=b"PAR1", headers={"Content-Type": "application/vnd.apache.parquet"}
    ),
    FaultCode.UNUSABLE_EVENT: asked("POST", "{table}/batches?format=debezium-json", json={"op": "t"}),
    FaultCode.FOREIGN_EVENT: asked(
        "POST", "{table}/batches?format=debezium-json", json={"op": "c", "after": {"k": 1}, "source": {"table": "no"}}
    ),
    FaultCode.UNKNOWN_TABLE: asked("POST", f"{DATABASES}/shop/batches", json={"tables": {"no": {"records": []}}}),
    FaultCode.WRONG_FIELD_COUNT: asked(
        "POST", "{table}/batches", content=b"k\n1,2\n", headers={"Content-Type": "text/csv"}
    ),
    FaultCode.WRONG_KEY_LENGTH: asked("GET", "{table}/rows", params={"key": ["1", "2"]}),
}


def kept_out(lose: Callable[[Path], None] = lambda _: None, text: str = "", **bounds: Any) -> Case:
    """Posting, behind a batch with a ``text``, to a service that takes no more, or whose warehouse was lost."""

    def provoke(service: Service) -> Iterable[Mapping[str, Any]]:
        folder = service.folder / f"bounds{next(NUMBERS)}"
        app = create_app(settings_with(KEYFOLD_DATA=folder, workers=0, **bounds))
        with TestClient(app, LOOPBACK) as client:
            client.post(DATABASES, json={"name": "shop"})
            described = schema({"a": "STRING"}, options={"merge.max-staleness": "1 ms"})
            url = new_table(replace(service, client=client), described)
            client.post(f"{url}/batches", json={"records": [{"k": 1, "a": text}]})
            lose(folder / "warehouse")
            return reported(client.post(f"{url}/batches", json={"records": [{"k": 1}]}))

    return provoke


BOUNDS: Mapping[FaultCode, Case] = {
    FaultCode.NO_ROOM: kept_out(least_free_mib=2**40),
    FaultCode.STAGED_BYTES: kept_out(text=Random(0).randbytes(2**21).hex(), staged_table_mib=1),
    FaultCode.STAGED_RECORDS: kept_out(staged_table_records=1),
    FaultCode.STAGED_TOO_LONG: kept_out(staged_late_seconds=0),
    FaultCode.WAREHOUSE_NOT_WRITABLE: kept_out(lambda warehouse: warehouse.rename(warehouse.with_name("elsewhere"))),
}

CASES: Mapping[FaultCode, Case] = {**VALUES, **SCHEMAS, **WARNINGS, **CHANGES, **REQUESTS, **TOKENS, **BOUNDS}
