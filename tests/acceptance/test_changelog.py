"""A changelog followed live over HTTP, merged on Spark: resumed without gap or repetition, ended when it must be."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.service import Client, TableClient

DATABASE = "followed"
FIELDS = [
    {"name": "id", "type": "BIGINT"},
    {"name": "n", "type": "BIGINT"},
    {"name": "tags", "type": "MULTISET<STRING>"},
]
OPTIONS = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "merge.max-staleness": "1 d",
    "changelog-producer.row-deduplicate": "true",
}
Event = dict[str, str]


@pytest.fixture(scope="module", autouse=True)
def database(client: Client) -> None:
    client.create_database(DATABASE)


def table_with(client: Client, name: str, **options: str) -> TableClient:
    wanted = OPTIONS | {"changelog-producer": "lookup"} | options
    client.create_table(DATABASE, name, {"fields": FIELDS, "primaryKeys": ["id"], "options": wanted}).raise_for_status()
    return TableClient(client, DATABASE, name)


def merge(table: TableClient, records: list[dict[str, Any]]) -> None:
    """A merge of ``records``, however long it takes."""
    table.post_batch(records).raise_for_status()
    done = table.merge()
    assert done["state"] == "succeeded", done


def events(answer: httpx.Response) -> Iterator[Event]:
    """Server-sent events; comments are left out."""
    event: Event = {}
    for line in answer.iter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
        elif not line and event:
            yield event
            event = {}


def follow(table: TableClient, count: int | None = None, **headers: str) -> list[Event]:
    """The first ``count`` events, or all, from the beginning or from ``Last-Event-ID``; none of schemas."""
    asked = {"Accept": "text/event-stream", **headers}
    with table.client.stream("GET", f"{table.path}/changelog?fromSnapshot=1", headers=asked) as answer:
        assert answer.status_code == 200, answer.read()
        found: list[Event] = []
        for event in events(answer):
            if event.get("event") == "schema":
                continue
            found.append(event)
            if len(found) == count:
                break
        return found


def changes(found: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(event["data"]) for event in found if "event" not in event]


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.raise_for_status().text.splitlines()]


POSTED: list[list[dict[str, Any]]] = [
    [{"id": 1, "n": 1, "tags": {"a": 2}}],
    [{"id": 1, "n": 0}, {"id": 2, "n": 5}],
    [{"id": 2, "n": 1}],
]
# How many changes there are after each batch.
PRODUCED = {"lookup": (1, 2, 4), "full-compaction": (1, 2, 4), "input": (1, 3, 4)}


def wait_for_changes(table: TableClient, count: int) -> None:
    """Returns once the changelog has ``count`` changes: compactions come after the merge."""
    deadline = time.monotonic() + 120
    while len(lines(table.client.get(f"{table.path}/changelog"))) < count:
        assert time.monotonic() < deadline, "the changes do not come"
        time.sleep(0.1)


def test_lookup_full_compaction_and_input_tell_changes_in_every_form(client: Client) -> None:
    found = {}
    for producer, counts in PRODUCED.items():
        table = table_with(client, producer, **{"changelog-producer": producer})
        for count, records in zip(counts, POSTED, strict=True):
            merge(table, records)
            wait_for_changes(table, count)
        whole = follow(table, {"full-compaction": 7, "input": 4, "lookup": 4}[producer])
        reported = lines(client.get(f"{table.path}/changelog"))
        assert reported == changes(whole)
        streamed = client.get(f"{table.path}/changelog", headers={"Accept": "application/vnd.apache.arrow.stream"})
        assert pa.ipc.open_stream(streamed.content).read_all().num_rows == len(reported)
        found[producer] = [(one["_kind"], one["id"], one["n"], one["tags"]) for one in reported]
    expected = [("+I", 1, 1, {"a": 2}), ("+I", 2, 5, None), ("-U", 2, 5, None), ("+U", 2, 6, None)]
    assert found["lookup"] == found["full-compaction"] == expected
    posted = [("+I", 1, 1, {"a": 2}), ("+I", 1, 0, None), ("+I", 2, 5, None), ("+I", 2, 1, None)]
    assert sorted(found["input"], key=str) == sorted(posted, key=str)


def test_a_reader_that_breaks_off_anywhere_resumes_without_gap_or_repetition(client: Client) -> None:
    table = table_with(client, "resumed")
    stop = threading.Event()

    def write() -> None:
        try:
            for number in range(6):
                merge(table, [{"id": key, "n": 1} for key in range(number % 3, 4)])
            stop.set()
        finally:
            if not stop.is_set():
                client.delete(table.path)  # the reader would wait for ever

    writer = threading.Thread(target=write)
    writer.start()
    found: list[Event] = []
    position: dict[str, str] = {}
    while len(changes(found)) < 4 + 2 * (3 + 2 + 4 + 3 + 2):
        found += follow(table, 1 + len(found) % 3, **position)
        position = {"Last-Event-ID": found[-1]["id"]}
    writer.join()
    assert stop.is_set()
    assert changes(found) == lines(client.get(f"{table.path}/changelog", params={"maxResults": 10_000}))
    rows: dict[int, int] = {}
    for change in changes(found):
        assert change["_kind"] in ("+I", "+U") or rows.pop(change["id"]) == change["n"]
        if change["_kind"] in ("+I", "+U"):
            rows[change["id"]] = change["n"]
    assert rows == {0: 2, 1: 4, 2: 6, 3: 6}


def test_a_snapshot_without_changes_moves_the_reader_on(client: Client) -> None:
    table = table_with(client, "quiet")
    merge(table, [{"id": 1, "n": 1}])
    merge(table, [{"id": 1, "n": 0}])
    first, second = follow(table, 2)
    assert (first["id"], second["id"]) == ("2.0", "3.0")
    assert (second["event"], json.loads(second["data"])) == ("snapshot", {"_snapshot": 2, "kind": "merge"})


def test_records_of_an_input_changelog_say_what_they_named(client: Client) -> None:
    """Also those that were merged before the table's records told, which named all."""
    fields = [{"name": "id", "type": "BIGINT"}, {"name": "a", "type": "INT"}, {"name": "b", "type": "INT"}]
    options = {"merge-engine": "partial-update", "changelog-producer": "input", "merge.max-staleness": "1 d"}
    body = {"fields": fields, "primaryKeys": ["id"], "options": options}
    client.create_table(DATABASE, "naming", body).raise_for_status()
    table = TableClient(client, DATABASE, "naming")
    merge(table, [{"id": 1, "a": 5}])
    option = {"action": "setOption", "key": "record.absent-columns", "value": "unchanged"}
    client.post(table.path, json={"changes": [option]}).raise_for_status()
    merge(table, [{"id": 1, "b": 7}, {"id": 1, "a": None}])
    reported = lines(table.client.get(f"{table.path}/changelog"))
    assert [{name: row[name] for name in row if not name.startswith("_")} for row in reported] == [
        {"id": 1, "a": 5, "b": None},
        {"id": 1, "b": 7},
        {"id": 1, "a": None},
    ]
    answer = table.client.get(f"{table.path}/changelog", headers={"Accept": "application/vnd.apache.arrow.stream"})
    with pa.ipc.open_stream(answer.raise_for_status().content) as stream:
        assert stream.read_all().select(["id", "a", "b"]).to_pylist() == [{"id": 1, "a": 5, "b": None}]
