"""Lookups by primary key over HTTP."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from datetime import time as clock
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from tests.api.conftest import TABLES, Create, Merge, parts_of
from tests.api.walk import headers_of

ROWS = f"{TABLES}/wide/rows"
ODD_KEYS = [
    *("", " ", "/", "a/b", "//", "+", "a+b", "a b", "%", "%2F", "%25", "..", ".", "../../etc/passwd", "?", "a?b=c&d"),
    *("#", "a,b", '"', "\\", "ü", "日本", "😀", "e\u0301", "\u00e9", "\u0000", "\n", "a\n", ":batchGet", "null"),
    *("a", "A", "a ", "x" * 3000),
]
# What HTTP clients and servers cannot carry in a path; ``/rows/`` is ``/rows`` with a slash behind it.
NOT_IN_A_PATH = {"", "..", ".", "../../etc/passwd"}


@pytest.fixture
def table(create: Create, shop: TestClient, merge: Merge) -> Callable[..., Table]:
    """Makes a table of columns (name, type) with the key columns ``key``."""

    def make(*columns: tuple[str, str], key: Sequence[str] = ("id",), **options: str) -> Table:
        fields = [{"id": number, "name": name, "type": kind} for number, (name, kind) in enumerate(columns)]
        return Table(shop, merge, create(fields=fields, primaryKeys=list(key), options=options)["id"])

    return make


class Table:
    """The table ``wide``: posts, merges, reads."""

    def __init__(self, client: TestClient, merge: Merge, table_id: str) -> None:
        self.client, self.merge, self.id = client, merge, table_id

    def stage(self, *records: Mapping[str, Any]) -> None:
        answer = self.client.post(f"{TABLES}/wide/batches", json={"records": records})
        assert answer.status_code == 202, answer.text

    def get(self, *key: Any, headers: Mapping[str, str] | None = None, **params: str) -> Any:
        return self.client.get(ROWS, params=[*(("key", one) for one in key), *params.items()], headers=headers)

    def batch_get(self, *keys: Any, **params: str) -> Any:
        return self.client.post(f"{ROWS}:batchGet", json={"keys": keys}, params=params)


MakeTable = Callable[..., Table]


def test_every_text_is_a_key_and_the_path_takes_those_that_a_path_can_carry(table: MakeTable) -> None:
    rows = table(("id", "STRING"), ("n", "INT"))
    rows.merge(*({"id": key, "n": number} for number, key in enumerate(ODD_KEYS)))
    for number, key in enumerate(ODD_KEYS):
        assert rows.get(key).json() == {"id": key, "n": number}
    answers = rows.batch_get(*({"id": key} for key in ODD_KEYS)).json()["rows"]
    assert answers == [
        {"key": {"id": key}, "found": True, "row": {"id": key, "n": number}} for number, key in enumerate(ODD_KEYS)
    ]

    for number, key in enumerate(ODD_KEYS):
        if key not in NOT_IN_A_PATH and unquote(key) == key:  # Starlette's test client decodes twice
            assert rows.client.get(f"{ROWS}/{quote(key, safe='')}").json() == {"id": key, "n": number}, key


def test_a_composite_key_is_given_in_primary_key_order(table: MakeTable) -> None:
    rows = table(("a", "STRING"), ("n", "INT"), ("b", "INT"), key=["b", "a"])
    rows.merge({"a": "1", "b": 2, "n": 5}, {"a": "2", "b": 1, "n": 6})
    assert rows.get("2", "1").json() == {"a": "1", "n": 5, "b": 2}
    assert rows.get("1", "2").json()["n"] == 6
    assert rows.batch_get({"a": "1", "b": 2}).json()["rows"][0]["row"]["n"] == 5
    for wrong in ((), ("2",), ("2", "1", "1")):
        assert rows.get(*wrong).status_code == 400
    assert rows.client.get(f"{ROWS}/2").json()["errorCode"] == "invalid_key"


# Of each type a value, one more spelling of it, and what is none.
TYPED_KEYS: dict[str, tuple[Any, str, list[str]]] = {
    "BOOLEAN": (True, "true", ["1", "yes", ""]),
    "TINYINT": (-128, "-1.280e2", ["128", "1.5", "1e3", "", "x", "٣", "9" * 50]),
    "BIGINT": (2**63 - 1, "9223372036854775807", ["9223372036854775808", "1_0", " 1", "0x1"]),
    "DOUBLE": (0.5, "5e-1", ["nan", "inf", "1e999", ""]),
    "FLOAT": ("-Infinity", "-Infinity", ["infinity", "1e39"]),
    "DECIMAL(6, 2)": ("-12.50", "-12.5", ["1.234", "10000", "NaN", "1e400"]),
    "DATE": ("2024-02-29", "2024-02-29", ["2023-02-29", "2024-2-29", "now"]),
    "TIMESTAMP(3)": ("2024-01-31T10:00:00.5", "2024-01-31T10:00:00.500", ["2024-01-31T10:00:00Z", "2024-01-31"]),
    "TIMESTAMP_LTZ(3)": ("2024-01-31T10:00:00Z", "2024-01-31T12:00:00+02:00", ["2024-01-31T10:00:00"]),
    "BYTES": ("+/8=", "+/8=", ["*", "AAA"]),
    "CHAR(2)": ("é!", "é!", ["abc"]),
}


def test_a_key_of_every_type_is_read_strictly(table: MakeTable) -> None:
    row = {kind: value for kind, (value, _, _) in TYPED_KEYS.items()}
    texts = {kind: text for kind, (_, text, _) in TYPED_KEYS.items()}
    rows = table(*((kind, kind) for kind in TYPED_KEYS), key=list(TYPED_KEYS))
    rows.merge(row)
    assert rows.get(*texts.values()).json() == row
    for kind, bad in [(kind, bad) for kind, (_, _, wrong) in TYPED_KEYS.items() for bad in wrong]:
        answer = rows.get(*(texts | {kind: bad}).values())
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "invalid_key"), bad
        assert [fault["pointer"] for fault in answer.json()["errors"]] == [f"/key/{kind}"]


def test_columns_choose_what_is_answered_and_those_of_many_rows_are_named_by_the_parameter_or_the_body(
    table: MakeTable,
) -> None:
    rows = table(("id", "INT"), ("a", "INT"), ("b", "INT"))
    rows.merge({"id": 1, "a": 2, "b": 3})
    assert list(rows.get(1, columns="b,id").json().items()) == [("b", 3), ("id", 1)]
    assert rows.batch_get({"id": 1}, columns="a").json()["rows"][0]["row"] == {"a": 2}
    refused = rows.get(1, columns="b,nope,none")
    assert (refused.status_code, len(refused.json()["errors"])) == (400, 2)

    keys = [{"id": 1}]

    def get(query: str = "", **body: Any) -> Any:
        return rows.client.post(f"{ROWS}:batchGet{query}", json={"keys": keys, **body})

    assert get(columns=["b"]).json() == get("?columns=b").json()
    assert get(columns=["b"]).json()["rows"][0]["row"] == {"b": 3}
    for answer, code in (
        (get(columns=["c"]), "unknown_column"),
        (get("?columns=a", columns=["b"]), "contradicting_parameters"),
        (get(column=["b"]), "unknown_member"),
    ):
        assert (answer.status_code, [fault["code"] for fault in answer.json()["errors"]]) == (400, [code])


def test_an_etag_spares_the_body_until_the_row_changes(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("a", "INT"))
    rows.merge({"id": 1, "a": 2}, {"id": 2, "a": 2})
    first = rows.get(1)
    etag = first.headers["etag"]
    assert first.headers["keyfold-snapshot"] == "1"
    for known in (etag, f'"x", W/{etag}', "*"):
        spared = rows.get(1, headers={"If-None-Match": known})
        assert (spared.status_code, spared.content, spared.headers["etag"]) == (304, b"", etag)
    rows.merge({"id": 2, "a": 3})
    assert rows.get(1, headers={"If-None-Match": etag}).status_code == 304
    rows.merge({"id": 1, "a": 3})
    changed = rows.get(1, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()) == (200, {"id": 1, "a": 3})
    assert changed.headers["etag"] != etag
    assert changed.headers["keyfold-snapshot"] == "3"


def test_a_row_never_written_is_distinguished_from_a_deleted_one(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("a", "INT"))
    assert "never written" in rows.get(1).json()["detail"]  # before the first merge
    rows.merge({"id": 1, "a": 2})
    rows.stage({"id": 1, "_kind": "-D"})
    assert rows.get(1, consistency="merged").status_code == 200
    assert "was deleted" in rows.get(1).json()["detail"]
    rows.merge()
    deleted, never = rows.get(1), rows.get(2)
    assert [answer.status_code for answer in (deleted, never)] == [404, 404]
    assert [answer.json()["errorCode"] for answer in (deleted, never)] == ["row_not_found"] * 2
    assert "was deleted" in deleted.json()["detail"]
    assert "was never written" in never.json()["detail"]
    assert rows.batch_get({"id": 1}, {"id": 2}).json()["rows"] == [
        {"key": {"id": 1}, "found": False, "row": None},
        {"key": {"id": 2}, "found": False, "row": None},
    ]


@pytest.mark.parametrize("body", ['{"keys":[],"keys":[{"id":1}]}', '{"keys":[{"id":1,"id":2}]}'])
def test_a_body_that_names_a_member_twice_is_refused(table: MakeTable, body: str) -> None:
    rows = table(("id", "INT"))
    answer = rows.client.post(f"{ROWS}:batchGet", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "duplicate_key")


def test_latest_sees_what_is_staged_and_merged_does_not(table: MakeTable) -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    rows = table(("id", "INT"), ("n", "INT"), **options)
    rows.merge({"id": 1, "n": 1})
    rows.stage({"id": 1, "n": 10}, {"id": 2, "n": 5})
    rows.stage({"id": 1, "n": 100})
    assert rows.get(1, consistency="merged").json() == {"id": 1, "n": 1}
    assert rows.get(1).json() == rows.get(1, consistency="latest").json() == {"id": 1, "n": 111}
    unmerged = rows.get(2, consistency="merged")
    assert (unmerged.status_code, unmerged.json()["detail"]) == (
        404,
        'no row {"id": 2} in shop.wide: it is not merged yet: batch 2 is staged',
    )
    assert "never written" in rows.get(3, consistency="merged").json()["detail"]
    for number in range(15):  # with the two of before one more than are opened to say why
        rows.stage({"id": 1000 + number, "n": 1})
    assert "one of 17 staged batches may have it" in rows.get(3, consistency="merged").json()["detail"]
    assert rows.client.get(f"{ROWS}/2").json() == {"id": 2, "n": 5}
    both = rows.batch_get({"id": 1}, {"id": 2}).json()["rows"]
    assert [one["row"]["n"] for one in both] == [111, 5]
    one = rows.batch_get({"id": 1}, {"id": 2}, consistency="merged").json()["rows"]
    assert [found["row"] for found in one] == [{"id": 1, "n": 1}, None]
    assert rows.get(1, consistency="eventual").status_code == 400


def test_headers_say_the_snapshot_and_the_last_batch_that_are_in_the_answer(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("n", "INT"))

    def seen(answer: Any) -> tuple[int, str, str | None]:
        return answer.status_code, answer.headers["Keyfold-Snapshot"], answer.headers.get("Keyfold-Batch")

    assert seen(rows.get(1)) == (404, "0", "0")
    rows.merge({"id": 1, "n": 1})
    rows.stage({"id": 2, "n": 1})
    assert seen(rows.get(1)) == seen(rows.client.get(f"{ROWS}/1")) == seen(rows.batch_get({"id": 1})) == (200, "1", "2")
    assert seen(rows.get(1, consistency="merged")) == (200, "1", "1")
    assert seen(rows.get(3)) == (404, "1", "2")
    assert seen(rows.get(1, headers={"If-None-Match": rows.get(1).headers["ETag"]})) == (304, "1", "2")
    assert seen(rows.get(1, snapshot="1")) == (200, "1", None)


def test_after_waits_for_exactly_that_batch(table: MakeTable, app: FastAPI) -> None:
    rows = table(("id", "INT"), ("n", "INT"), **{"merge.max-staleness": "1 d"})
    rows.merge({"id": 1, "n": 1})
    posted = rows.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1, "n": 2}]}).json()["id"]
    assert rows.get(1, after=posted).json()["n"] == 2
    parts: Parts = app.state.parts
    impatient = replace(parts, awaited=replace(parts.awaited, seconds=0.1))
    app.state.parts = impatient
    late = rows.get(1, after=posted, consistency="merged")
    app.state.parts = parts
    assert (late.status_code, "POST …/merges" in late.json()["detail"]) == (503, True)
    with ThreadPoolExecutor(1) as waiting:
        answer = waiting.submit(rows.get, 1, after=posted, consistency="merged")
        time.sleep(0.1)
        rows.merge()
        assert answer.result().json()["n"] == 2
    withdrawn = rows.client.post(f"{TABLES}/wide/batches", json={"records": [{"id": 1, "n": 3}]}).json()["id"]
    rows.client.delete(f"{TABLES}/wide/batches/{withdrawn}")
    assert (rows.get(1, after=withdrawn).status_code, rows.get(1, after="none").status_code) == (404, 404)
    assert rows.get(1, after=posted, snapshot="1").json()["errors"][0]["code"] == "contradicting_parameters"


ODD_LOOKUPS = ["key=1&key=2", "", "key=x", "key=1&columns=id,nope", "key=1&consistancy=merged", "key=1&consistency=x"]


LOOKUPS = ["key=1", "key=%31&columns=n", "key=1&columns=n&columns=id", "key=5", *ODD_LOOKUPS]


def test_a_lookup_is_answered_directly_as_the_documented_route_answers_it(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("n", "INT"))
    rows.merge({"id": 1, "n": 1})
    for query in LOOKUPS:
        direct = rows.client.get(f"{ROWS}?{query}")
        documented = rows.client.request("GET", f"{ROWS}?{query}", headers={"Content-Length": "0"})
        answers = (direct, documented)
        of_one = [re.sub(rb'"requestId":"[^"]*"', b"", answer.content) for answer in answers]
        assert (direct.status_code, of_one[0]) == (documented.status_code, of_one[1]), query
        reported = [
            {name: one for name, one in headers_of(answer).items() if name != "content-length"} for answer in answers
        ]
        assert reported[0] == reported[1], query
        assert direct.status_code == (400 if query in ODD_LOOKUPS else 404 if query == "key=5" else 200), query


def test_batch_get_answers_in_request_order_without_gaps(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("n", "INT"))
    rows.merge(*({"id": key, "n": key * 10} for key in range(5)))
    asked = [3, 99, 3, 0, -1, 4]
    answer = rows.batch_get(*({"id": key} for key in asked))
    assert answer.status_code == 200
    assert answer.json()["snapshotId"] == 1
    assert [row["key"]["id"] for row in answer.json()["rows"]] == asked
    assert [row["row"] and row["row"]["n"] for row in answer.json()["rows"]] == [30, None, 30, 0, None, 40]


def test_batch_get_takes_ten_thousand_keys_and_no_more(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("n", "INT"))
    rows.merge({"id": 7, "n": 1})
    answers = rows.batch_get(*({"id": key} for key in range(10_000))).json()["rows"]
    assert [answer["key"]["id"] for answer in answers] == list(range(10_000))
    assert [answer["key"]["id"] for answer in answers if answer["found"]] == [7]
    assert rows.batch_get(*({"id": key} for key in range(10_001))).status_code == 400
    assert rows.batch_get().json()["rows"] == []


def test_batch_get_answers_arrow_to_those_who_accept_it(table: MakeTable) -> None:
    rows = table(("a%b", "TIME"), ("id", "STRING"), ("at", "TIMESTAMP(3)"), ("of", "ARRAY<TIME>"), key=["id", "a%b"])
    moment, first, second = "2024-01-31T10:00:00.5", "00:00:01", "00:00:02"
    rows.merge({"id": "x", "a%b": first, "at": moment, "of": [first, None]}, {"id": "y", "a%b": second})
    keys = [{"id": "y", "a%b": second}, {"id": "z", "a%b": first}, {"id": "x", "a%b": first}]
    answer = rows.client.post(
        f"{ROWS}:batchGet", json={"keys": keys}, headers={"Accept": "text/html, application/vnd.apache.arrow.stream"}
    )
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert answer.headers["keyfold-snapshot"] == "1"
    read = pa.ipc.open_stream(answer.content).read_all()
    assert read.column_names == ["_kf_found", "id", "a%b", "at", "of"]
    assert read.to_pylist() == [
        {"_kf_found": True, "id": "y", "a%b": clock(0, 0, 2), "at": None, "of": None},
        {"_kf_found": False, "id": "z", "a%b": clock(0, 0, 1), "at": None, "of": None},
        {
            "_kf_found": True,
            "id": "x",
            "a%b": clock(0, 0, 1),
            "at": datetime.fromisoformat(moment),
            "of": [clock(0, 0, 1), None],
        },
    ]
    shown = rows.batch_get(*keys).json()["rows"]
    assert [one["key"] for one in shown] == keys
    assert shown[2]["row"] == {"a%b": first, "id": "x", "at": moment, "of": [first, None]}


def test_keys_that_are_none_are_named_by_their_places(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("n", "INT"))
    for key in ({}, {"id": None}, {"id": "x"}, {"id": 1, "n": 2}, 5, None, [1], {"id": {}}):
        answer = rows.batch_get({"id": 1}, key, {"id": 2}, key)
        assert answer.status_code == 400
        places = {fault["pointer"][:7] for fault in answer.json()["errors"]}
        assert places == {"/keys/1", "/keys/3"}, key


def test_a_file_that_has_vanished_is_named_with_what_to_restore(table: MakeTable) -> None:
    rows = table(("id", "INT"), ("n", "INT"))
    rows.stage({"id": 1, "n": 1})
    parts = parts_of(rows.client)
    parts.warehouse.filesystem.delete_dir(parts.warehouse.path(rows.id))
    answer = rows.get(1, consistency="latest")
    reported = answer.json()
    assert (answer.status_code, reported["errorCode"], reported["resourceType"]) == (503, "damaged_file", "FILE")
    assert reported["resourceName"].startswith(f"{rows.id}/staging/")
    assert f"{reported['resourceName']} is missing; restore it" in reported["detail"]
    assert answer.headers["retry-after"] == "60"
