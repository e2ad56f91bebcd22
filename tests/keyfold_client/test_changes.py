"""Changes as an iterator, over breaks of the service, and the client for asyncio."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from keyfold_client import (
    AsyncClient,
    Busy,
    Client,
    Misuse,
    NotKeyfold,
    NotPermitted,
    Refused,
    ServiceFault,
    Table,
    Unreachable,
)
from tests.answering import answering, reported
from tests.keyfold_client.conftest import MakeTable
from tests.service import Service

EVENTS = "Content-Type: text/event-stream"
FOLLOWED = {"changelog-producer": "lookup"}
PATIENCE_SECONDS = 60


def test_changes_are_read_from_a_snapshot_a_place_or_from_now_on(table: MakeTable) -> None:
    one = table("id BIGINT PRIMARY KEY NOT ENFORCED, paid DECIMAL(6, 2)", **FOLLOWED)
    for paid in ("1.00", "2.00"):
        one.upsert([{"id": 1, "paid": paid}])
        one.merge()
    found = list(one.changes(since=1, until=2))
    assert [(one.kind, one.snapshot, one.row["paid"]) for one in found] == [
        ("+I", 1, Decimal("1.00")),
        ("-U", 2, Decimal("1.00")),
        ("+U", 2, Decimal("2.00")),
    ]
    assert list(one.changes(after=found[0].place, until=2)) == found[1:]
    later = one.changes()
    reported: list[str] = []
    reading = threading.Thread(target=lambda: reported.append(next(later).kind))
    reading.start()
    while not reported:  # what is merged before the reader has looked where to begin is not told
        one.upsert([{"id": 2}, {"id": 1, "paid": "3.00"}])
        one.merge()
        one.delete(2)
        one.merge()
    reading.join()
    assert reported[0] in {"+I", "-U", "-D"}


def test_a_table_that_keeps_no_changes_says_so(table: MakeTable) -> None:
    with pytest.raises(Refused, match="changelog-producer"):
        next(table(**{"merge-engine": "partial-update"}).changes(since=1))


def test_a_service_that_is_killed_loses_and_doubles_no_change(spark_remote: str, tmp_path: Path) -> None:
    environment = {"KEYFOLD_SPARK_REMOTE": spark_remote}
    service = Service(tmp_path, environment)
    port = int(service.url.rpartition(":")[2])
    seen: list[tuple[int, int]] = []
    try:
        with Client(service.url, patience_seconds=120) as client:
            client.create_database("shop")
            [one] = client.create_tables(
                "shop",
                "CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ('changelog-producer' = 'lookup')",
            )

            def read() -> None:
                later = (change for change in one.changes(since=1, until=4) if change.kind != "-U")
                seen.extend((change.snapshot, change.row["n"]) for change in later)

            reading = threading.Thread(target=read)
            reading.start()
            for snapshot in range(1, 5):
                one.upsert([{"id": 1, "n": snapshot}], wait=60)
                if snapshot == 2:
                    service.kill()
                    service = Service(tmp_path, environment, port=port)
            reading.join(120)
            assert not reading.is_alive()
    finally:
        service.stop()
    assert seen == [(number, number) for number in range(1, 5)]


class CountedTable(Table):
    """A table that counts how often its schema is read."""

    reads = 0

    def _read(self, rest: str, params: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        self.reads += rest.startswith("/schemas/")
        return super()._read(rest, params)


def test_the_schema_is_not_read_again_for_each_change_with_a_column_that_was_dropped(
    client: Client, table: MakeTable
) -> None:
    made = table(**FOLLOWED)
    made.upsert([{"id": number, "word": "x"} for number in range(50)])
    snapshot = made.merge()["snapshotId"]
    dropped = [{"action": "dropColumn", "fieldNames": ["word"]}]
    client.transport.ask("POST", f"/v1/catalog/databases/shop/tables/{made.name}", json={"changes": dropped})
    counted = CountedTable(client.transport, made.database, made.name)
    changes = [*counted.changes(since=snapshot, until=snapshot)]
    assert [change.row["word"] for change in changes] == ["x"] * 50
    assert counted.reads == 1


def test_asyncio_does_many_things_at_once(url: str, table: MakeTable) -> None:
    one = table(**{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **FOLLOWED})

    async def play() -> None:
        async with AsyncClient(url) as client:
            same = client.table(f"shop.{one.name}")
            await asyncio.gather(*(same.upsert([{"id": 1, "n": 2**50 + number}]) for number in range(20)))
            await same.merge()
            total = 20 * 2**50 + 190
            assert await same.get(1) == {"id": 1, "word": None, "n": total}
            assert [row async for row in same.scan()] == [{"id": 1, "word": None, "n": total}]
            assert (await same.scan().to_pandas()).loc[0, "n"] == total
            assert (await same.scan().to_polars()).height == 1
            changes = [change async for change in same.changes(since=1, until=1)]
            assert [(change.kind, change.row["n"]) for change in changes] == [("+I", total)]
            assert "shop" in await client.databases()
            with pytest.raises(Refused):
                await same.upsert([{"nope": 1}])

    asyncio.run(play())


def test_what_may_pass_is_asked_again_and_told() -> None:
    busy = reported("503 Service Unavailable", '{"detail": "the catalog does not answer"}', "Retry-After: 0")
    full = reported("429 Too Many Requests", '{"detail": "too much is staged"}', "Retry-After: 0")
    pauses: list[str] = []
    listed = reported("200 OK", '{"databases": ["a"], "nextPageToken": null}')
    with (
        answering([busy, full, listed]) as url,
        Client(url, paused=lambda error, _: pauses.append(str(error))) as client,
    ):
        assert client.databases() == ["a"]
    assert pauses == ["the catalog does not answer", "too much is staged"]


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"])
def test_a_service_that_is_away_behind_a_proxy_is_waited_for(status: str) -> None:
    """The first answer is a refusal: it, too, shows that a service is there."""
    away = reported(status, "<html>")
    known = reported("409 Conflict", '{"errorCode": "database_already_exists"}')
    batch = '{"id": "b", "number": 1, "state": "staged", "records": 1, "ignoredRecords": 0}'
    pauses: list[str] = []
    with (
        answering([known, away, reported("202 Accepted", batch)]) as url,
        Client(url, paused=lambda error, _: pauses.append(str(error))) as client,
    ):
        client.create_database("shop", if_not_exists=True)
        assert client.table("shop.orders").upsert([{"id": 1}]).records == 1
    assert len(pauses) == 1
    assert status in pauses[0]


def test_changes_of_what_does_not_answer_end_with_an_error() -> None:
    broken = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"
    pauses: list[Exception] = []
    with (
        answering([broken, reported("502 Bad Gateway", "")]) as url,
        Client(url, patience_seconds=0, paused=lambda error, _: pauses.append(error)) as client,
        pytest.raises(Unreachable, match="502 Bad Gateway"),
    ):
        next(client.table("a.b").changes(since=1))
    assert len(pauses) == 1


def test_comments_of_a_quiet_feed_are_no_changes() -> None:
    """The service sends one every 15 seconds while nothing is merged."""
    change, comment = 'data: {"_kind": "+I", "_snapshot": 1, "id": %d}\nid: %s\n\n', ":\n\n"
    stream = reported("200 OK", comment + change % (1, "1.1") + comment + change % (2, "2.0") + comment, EVENTS)
    with answering([stream]) as url, Client(url) as client:
        lines = list(client.table("a.b").change_lines(since=1, until=1))
    assert [(json.loads(line)["id"], place) for line, place in lines] == [(1, "1.1"), (2, "2.0")]


def test_feeds_are_not_counted_among_the_connections_of_other_requests() -> None:
    """httpx opens a hundred connections at most by itself: a hundred feeds would take them all."""

    async def play() -> None:
        begun, ended = asyncio.Semaphore(0), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            begun.release()
            await ended.wait()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            feeds = [asyncio.create_task(anext(client.table("a.b").changes(since=1))) for _ in range(101)]
            for _ in feeds:
                await asyncio.wait_for(begun.acquire(), PATIENCE_SECONDS)
            for feed in feeds:
                feed.cancel()
            await asyncio.gather(*feeds, return_exceptions=True)
            ended.set()

    asyncio.run(play())


def test_a_client_that_is_closed_says_so(url: str) -> None:
    with Client(url) as client:
        client.databases()
    with pytest.raises(Misuse, match="closed"):
        client.databases()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reported("503 Service Unavailable", '{"detail": "damaged"}', "Retry-After: 60"), Busy),
        (reported("401 Unauthorized", '{"detail": "no token"}'), NotPermitted),
        (reported("502 Bad Gateway", "<html>"), Unreachable),
        (reported("500 Internal Server Error", "<html>"), ServiceFault),
        (reported("200 OK", "<html>"), NotKeyfold),
        (reported("200 OK", "")[:-20], Unreachable),
    ],
)
def test_what_does_not_pass_is_an_error_of_its_kind(answer: bytes, error: type[Exception]) -> None:
    with answering([answer]) as url, Client(url) as client, pytest.raises(error):
        client.databases()


def test_a_scan_that_breaks_off_is_no_whole_answer() -> None:
    half = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"
    for read in ("to_arrow", "__iter__"):
        with answering([half]) as url, Client(url) as client, pytest.raises(Unreachable):
            list(getattr(client.table("a.b").scan(), read)())
