"""Promise 5: whatever is sent, wherever: never a 5xx, always a problem that says what is wrong, and nothing stored."""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories import examples
from tests.service import Client, TableClient

DATABASE = "hostile"
KINDS = [
    *("BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 38)", "CHAR(3)"),
    *("VARCHAR(3)", "STRING", "BINARY(3)", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"),
    *("ARRAY<ARRAY<INT>>", "MAP<STRING, INT>", "MAP<INT, BYTES>", "MULTISET<STRING>", "ROW<a INT, b ARRAY<STRING>>"),
]
SCHEMA: dict[str, Any] = {
    "fields": [
        {"name": "id", "type": "BIGINT"},
        {"name": "text", "type": "STRING"},
        *({"name": f"c{number}", "type": kind} for number, kind in enumerate(KINDS)),
    ],
    "primaryKeys": ["id", "text"],
    # Only what is asked for may be merged.
    "options": {"merge.max-staleness": "1 d"},
}
DEEP = b"[" * 100_000
VALUES = [
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1e-999", b"1e99999999999999999999", b"9" * 4299),
    *(b"9" * 5000, b"-" + b"9" * 5000, b"0." + b"1" * 5000, b"0e99999999999999999999", b"1" * 30 + b"e400", b"00"),
    b"-",
    *(b"1.5", b"true", b'""', b'"x"', b"[]", b"{}", b"[[[]]]", b'{"a": {"a": {}}}', b"[null]", b"[[1, 2, 3]]"),
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\u0000"', b'"' + b"x" * 70_000 + b'"', b'"\x01"', b'"\xff"'),
    b'"\xed\xa0\x80"',
    *(b'"2024-13-01"', b'"0000-00-00T00:00:00"', b'"9999-12-31T23:59:59-23:59"', b'"NaN"', b'"1e5"', b'"AAA"'),
    *(b'{"a": 1, "a": 2}', b'{"": 1, "\\ud800": 2}', b'{"key": 1}', b'[{"key": [], "value": {}}]', b"[[[1], 1]]"),
    *(DEEP, b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900, b'"\\u12"', b"nul", b"'x'", b"1 2", b""),
]
BODIES = [
    *(b"", b" ", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf{}", b"null", b"1", b"true", b'"x"', b"[]", b"{}", b"[{}]", b"{"),
    *(DEEP, b'{"a":' * 100_000, b"[" * 3000 + b"]" * 3000, b"9" * 5000, b"1e99999999999999999999", b"NaN", b"-"),
    b'"\\ud800"',
    *(b'{"records": 1}', b'{"records": {}}', b'{"records": null}', b'{"records": [1]}', b'{"records": [[]]}'),
    *(b'{"records": [], "records": 5}', b'{"records": [{}]}', b'{"\\ud800": 1}', b'{"records": [{"\\ud800": 1}]}'),
    *(b'{"keys": 1}', b'{"keys": [1]}', b'{"keys": [{}]}', b'{"keys": [{"\\ud800": "\\ud800"}]}', b'{"keys": {}}'),
    *(b'{"keys": [' + b"{}," * 2000 + b"{}]}", b'{"keys": [' + b"1," * 2000 + b"1]}"),
    *(b'{"name": 5}', b'{"name": "\\u0000"}', b'{"name": "' + b"x" * 5000 + b'"}', b'{"name": "a/b", "options": []}'),
    *(b'{"identifier": {}, "schema": {}}', b'{"identifier": [], "schema": []}', b'{"removals": "x", "updates": [1]}'),
    *(
        b'{"tagName": 5}',
        b'{"tagName": "\\ud800"}',
        b'{"tagName": "\\u0000"}',
        b'{"tagName": "x", "snapshotId": 1e999}',
    ),
    *(b'{"tagName": "x", "snapshotId": ' + b"9" * 4000 + b"}", b'{"tagName": "x", "timeRetained": "1e99 d"}'),
    *(b'{"instant": 1}', b'{"instant": {"type": []}}', b'{"instant": {"type": "tag", "tagName": "\\ud800"}}'),
    *(b'{"snapshot": -9}', b'{"snapshot": 1.5}', b'{"tag": "\\u0000"}', b'{"snapshot": 1, "tag": null}'),
    *(b'{"source": {"database": 1}, "destination": null}', b'{"' + b"k" * 100_000 + b'": 1}'),
]
SEGMENTS = [
    *("..%2f..%2fetc%2fpasswd", "%00", "%ff", "%0a", "%ed%a0%80", "x" * 5000, "%F0%9F%98%80", "%25", "a;b", "-1", ":"),
    "%2e%2e",
]
TYPES = [
    *("application/json", "application/x-ndjson", "text/plain", "application/octet-stream", "a/b; charset=nope"),
    *("\x7f", ";"),
]


def is_problem(response: Any, what: str) -> bool:
    """Whether the response refuses; then it must be a problem as promised, and never a fault of the service."""
    # 501 is the answer to a legal request for what is not there yet.
    assert response.status_code < 500 or response.status_code == 501, f"{what}: {response.text[:500]}"
    if response.status_code < 400:
        return False
    assert response.headers["content-type"] == "application/problem+json", f"{what}: {response.text[:500]}"
    body = response.json()
    assert type(body["code"]) is int, what
    assert body["code"] == body["status"] == response.status_code, what
    assert re.fullmatch("[a-z_]+", body["errorCode"]), what
    assert isinstance(body["message"], str), what
    assert isinstance(body["errors"], list), what
    return True


@pytest.fixture(scope="module")
def table(client: Client) -> TableClient:
    """A table of many types with nothing in it."""
    client.create_database(DATABASE)
    client.create_table(DATABASE, "wide", SCHEMA).raise_for_status()
    return TableClient(client, DATABASE, "wide")


@pytest.fixture
def untouched(client: Client, table: TableClient) -> Iterator[TableClient]:
    """The table; after the test the catalog is as before it and the table is still empty."""
    before = stored(client, table)
    yield table
    assert stored(client, table) == before


def stored(client: Client, table: TableClient) -> Any:
    databases = client.get("/v1/catalog/databases", params={"maxResults": 1000}).json()["databases"]
    assert client.get(f"{table.path}/batches").json()["batches"] == []
    tables = client.get(f"/v1/catalog/databases/{DATABASE}/tables", params={"maxResults": 1000}).json()["tables"]
    kept = [client.get(f"{table.path}/{noun}").json() for noun in ("snapshots", "tags", "stats")]
    return databases, tables, kept, client.get(table.path).json()


def operations(client: Client) -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path template, operation) of every route that the OpenAPI document names."""
    paths = client.get("/openapi.json").json()["paths"]
    return [(method, path, operation) for path, methods in paths.items() for method, operation in methods.items()]


def filled(path: str, **given: str) -> str:
    """The template with the names of what exists, and ``x`` for ids, unless ``given``."""
    names = {"database": DATABASE, "table": "wide", **given}
    return re.sub(r"{(\w+)(:path)?}", lambda match: names.get(match[1], "x"), path)


def harmless(method: str, path: str) -> bool:
    """Not routes that rightly succeed whatever the body says, because they take none, or know one member that may miss
    (``tests/api/routes/merging/test_compactions.py``).
    """
    return method != "delete" and not path.endswith(("/merges", "/compact"))


def test_hostile_bodies_are_refused_by_every_route(client: Client, untouched: TableClient) -> None:
    tried = 0
    for method, path, operation in operations(client):
        if "requestBody" not in operation or not harmless(method, path):
            continue
        for body, media_type in itertools.product(BODIES, TYPES[:2]):
            if (body, media_type) in EMPTY_BATCHES and path.endswith("/batches"):
                continue
            what = f"{method} {path} {media_type} {body[:40]!r}"
            answer = client.request(method, filled(path), content=body, headers={"Content-Type": media_type})
            if not is_problem(answer, what):
                assert answer.json() == NOTHING_CHANGED, what
            tried += 1
    assert tried > 300


# Members that a route does not know are ignored: then there is nothing to do.
NOTHING_CHANGED: dict[str, list[str]] = {"removed": [], "updated": [], "missing": []}
# No record at all is a batch, and not a fault.
EMPTY_BATCHES = {(b"[]", "application/json"), *((body, "application/x-ndjson") for body in (b"", b" "))}


@pytest.mark.parametrize("column", range(-2, len(KINDS)))
def test_hostile_values_are_refused_or_are_values_of_the_type(client: Client, table: TableClient, column: int) -> None:
    name = {-2: "id", -1: "text"}.get(column, f"c{column}")
    for number, value in enumerate(VALUES):
        kind, body = bodies_with(name, value)[number % 2]
        what = f"{name} {value[:40]!r} as {kind}"
        answer = client.post(f"{table.path}/batches", content=body, headers={"Content-Type": kind})
        if not is_problem(answer, what):
            assert legal(answer.json()), what
    forget(client, table)


def legal(batch: dict[str, Any]) -> bool:
    return batch["records"] == 1 and batch["state"] == "staged"


def forget(client: Client, table: TableClient) -> None:
    """The table is made anew, without its batches."""
    client.delete(table.path).raise_for_status()
    client.create_table(DATABASE, "wide", SCHEMA).raise_for_status()


def bodies_with(name: str, value: bytes) -> list[tuple[str, bytes]]:
    """The same record, otherwise valid, as each media type."""
    key = {"id": b'"text": "a"', "text": b'"id": 1'}.get(name, b'"id": 1, "text": "a"')
    record = b"{" + key + b', "' + name.encode() + b'": ' + value + b"}"
    return [("application/json", b'{"records": [' + record + b"]}"), ("application/x-ndjson", record + b"\n")]


def test_what_no_value_may_be_is_refused_by_every_type(client: Client, untouched: TableClient) -> None:
    never = [
        *(b"NaN", b"Infinity", b"-Infinity", b"9" * 5000, b"1e99999999999999999999", DEEP, b"nul", rb'"\ud800"'),
        b'"\xff"',
    ]
    for column, value in itertools.product(range(len(KINDS)), never):
        for kind, body in bodies_with(f"c{column}", value):
            answer = client.post(f"{untouched.path}/batches", content=body, headers={"Content-Type": kind})
            assert is_problem(answer, f"{KINDS[column]} {value[:40]!r}")
            assert answer.status_code == 400


def test_hostile_segments_of_the_path_lead_nowhere(client: Client, untouched: TableClient) -> None:
    for method, path, _ in operations(client):
        for name, segment in itertools.product(re.findall(r"{(\w+)", path), SEGMENTS):
            target = filled(path, **{name: segment})
            answer = client.request(method, target, content=b"{}" if method == "post" else None)
            assert is_problem(answer, f"{method} {target}"), f"{method} {target}"
            assert "root:" not in answer.text


def test_hostile_queries_are_refused_or_ignored(client: Client, untouched: TableClient) -> None:
    hostile = ["", "x", "-1", "0", "9" * 5000, "%00", "%ff", "%ed%a0%80", "1e999", "NaN", "%25%5c", "a" * 20_000]
    for method, path, operation in operations(client):
        if method != "get":
            continue
        names = [parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"]
        for name, value in itertools.product([*names, "unknown"], hostile):
            is_problem(client.get(f"{filled(path)}?{name}={value}"), f"{path} {name}={value[:40]}")
        is_problem(client.get(f"{filled(path)}?" + "&".join(f"{n}=1&{n}=2" for n in names)), path)


def test_hostile_keys_of_rows_are_refused(client: Client, untouched: TableClient) -> None:
    for value in VALUES:
        body = b'{"keys": [{"id": ' + value + b', "text": "a"}]}'
        is_problem(client.post(f"{untouched.path}/rows:batchGet", content=body), f"{value[:40]!r}")
        text = quote(value[:5000])
        is_problem(client.get(f"{untouched.path}/rows?key={text}&key=a"), text)
        is_problem(client.get(f"{untouched.path}/rows?key=1&key={text}"), text)


HEADERS = [
    *(("Idempotency-Key", value) for value in (b"", b"x" * 256, b"x" * 60_000)),
    *(("Content-Type", value.encode()) for value in TYPES[2:]),
    *(("Content-Type", b"application/json"), ("Content-Encoding", b"gzip")),
    *(("Origin", value) for value in (b"http://[", b"null", b"\xff", b"http://evil.example", b"://")),
]


@pytest.mark.parametrize(("name", "value"), HEADERS)
def test_hostile_headers_are_refused(client: Client, untouched: TableClient, name: str, value: bytes) -> None:
    body = b'{"records": [{"id": "x"}]}'
    answer = client.post(f"{untouched.path}/batches", content=body, headers=[(name.encode(), value)])
    assert is_problem(answer, f"{name}: {value[:40]!r}")


@pytest.mark.parametrize("value", [b"wait=" + b"9" * 5000, b"wait=1e9", b"wait=\xb2", b";;;", b"=,=,="])
def test_hostile_preferences_do_not_hurt(client: Client, untouched: TableClient, value: bytes) -> None:
    answer = client.post(f"{untouched.path}/batches", content=b"{", headers=[(b"Prefer", value)])
    assert is_problem(answer, repr(value[:40]))


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE"])
def test_methods_that_a_route_does_not_have_are_refused(client: Client, untouched: TableClient, method: str) -> None:
    known = {path for its, path, _ in operations(client) if its.upper() == method}
    every = {path for _, path, _ in operations(client)}
    others = {path for path in every if path.rpartition(":")[0] in known}  # a key of a row may end so
    for path in every - known - others:
        answer = client.request(method, filled(path))
        assert is_problem(answer, f"{method} {path}")
        assert answer.status_code == 405


def test_a_method_that_http_does_not_have_is_refused(client: Client, untouched: TableClient) -> None:
    answer = client.request("NONSENSE", untouched.path)
    assert is_problem(answer, "NONSENSE")
    assert answer.status_code == 400


def test_a_body_that_breaks_off_stores_nothing(client: Client, untouched: TableClient) -> None:
    target = urlsplit(str(client.base_url))
    for promised in (b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: x\r\n", b""):
        with socket.create_connection((target.hostname, target.port), timeout=30) as connection:
            head = f"POST {untouched.path}/batches HTTP/1.1\r\nHost: {target.netloc}\r\n".encode()
            connection.sendall(head + promised + b'\r\n24\r\n{"records": [{"id": 1, "text": "a"}]}')
    assert client.get("/healthz").status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "text", "_kind", "c0", "c7", "c21"]) | st.text(max_size=3), inner, max_size=4
        )
    ),
    max_leaves=20,
)


def test_any_json_and_any_bytes_are_answered(client: Client, table: TableClient) -> None:
    @given(body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), data=st.data())
    @settings(max_examples=examples(300))
    def answered(body: bytes, data: st.DataObject) -> None:
        wrap = data.draw(st.sampled_from([b"%s", b'{"records": [%s]}', b'{"keys": [%s]}', b'{"records": %s}']))
        route = data.draw(st.sampled_from(["/batches", "/rows:batchGet"]))
        kind = data.draw(st.sampled_from(TYPES))
        answer = client.post(table.path + route, content=wrap % body, headers={"Content-Type": kind})
        is_problem(answer, repr(body))

    answered()
    forget(client, table)
