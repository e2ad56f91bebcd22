"""Bounds of answers: whoever asks for more than one may have is told what to do, before the memory is taken."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from itertools import count, repeat
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from fastapi.responses import Response, StreamingResponse
from fastapi.testclient import TestClient
from starlette.types import Message

from app.api.shared.deps import Parts
from app.core.errors import StagingFull
from app.http.streams import whole_or_streamed
from app.main import create_app
from app.services.rows.scan_pages import MOST_BYTES, MOST_SCANS, MOST_STAGED_BYTES, PageToken, loaded
from app.services.rows.scans import BEGINNING, NDJSON, read_scan, written
from app.services.rows.views import view_of
from app.services.shared.answer_bytes import MOST_ANSWER_BYTES
from app.settings import Settings
from app.telemetry.entries import Counted
from tests.api.conftest import DATABASES, LOOPBACK, TABLES, new_table
from tests.services.builders import merge_staged

ARROW = "application/vnd.apache.arrow.stream"
LARGE = 2**20
MANY = MOST_ANSWER_BYTES // LARGE + 1
QUIET = {"merge.max-staleness": "1 d"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Parts]]:
    """A service with a row of a MiB in the table ``merged``, and in ``staged``."""
    folder: Path = tmp_path_factory.mktemp("answers")
    app = create_app(Settings(KEYFOLD_DATA=folder, workers=0))
    with TestClient(app, LOOPBACK, raise_server_exceptions=False) as client:
        parts: Parts = app.state.parts
        client.post(DATABASES, json={"name": "shop"})
        for name in ("merged", "staged"):
            table = client.post(TABLES, json=new_table(name, options=QUIET)).json()
            records = [{"id": 1, "note": "x" * LARGE}, {"id": 2, "note": "small"}]
            client.post(f"{TABLES}/{name}/batches", json={"records": records})
            if name == "merged":
                merge_staged(parts.database, parts.warehouse, table["id"])
        yield client, parts


def asked(client: TestClient, table: str, keys: list[int], accept: str = "application/json", columns: str = "") -> Any:
    query = {"columns": columns} if columns else {}
    body = {"keys": [{"id": key} for key in keys]}
    return client.post(f"{TABLES}/{table}/rows:batchGet", json=body, params=query, headers={"Accept": accept})


@pytest.mark.parametrize("accept", ["application/json", ARROW])
@pytest.mark.parametrize("table", ["merged", "staged"])
def test_a_large_row_asked_for_often_is_refused(parts: tuple[TestClient, Parts], table: str, accept: str) -> None:
    reported = asked(parts[0], table, [1] * MANY, accept).json()
    assert (reported["status"], reported["errorCode"]) == (413, "payload_too_large")
    assert [(fault["code"], fault["fix"]) for fault in reported["errors"]] == [
        ("too_large", "request fewer keys at a time, or fewer columns")
    ]
    assert str(MOST_ANSWER_BYTES) in reported["detail"]


@pytest.mark.parametrize("table", ["merged", "staged"])
def test_the_fixes_work(parts: tuple[TestClient, Parts], table: str) -> None:
    client = parts[0]
    few = asked(client, table, [1, 2, 1]).json()["rows"]
    assert [(row["found"], len(row["row"]["note"])) for row in few] == [(True, LARGE), (True, 5), (True, LARGE)]
    narrow = asked(client, table, [1] * MANY + [3], columns="id").json()["rows"]
    assert [row["row"] for row in narrow] == [{"id": 1}] * MANY + [None]
    arrow = pa.ipc.open_stream(asked(client, table, [1] * MANY + [3, 2], ARROW, "id").content).read_all()
    assert arrow.column("_kf_found").to_pylist() == [True] * MANY + [False, True]
    assert arrow.column("id").to_pylist() == [1] * MANY + [3, 2]


def test_a_key_is_looked_up_once_however_often_it_is_requested(parts: tuple[TestClient, Parts]) -> None:
    client, opened = parts
    metrics = opened.database.metrics

    def looked_up() -> float:
        return sum(sum(cells) for place, cells in metrics.totals().items() if place[0] is Counted.LOOKED_UP)

    before = looked_up()
    assert len(asked(client, "staged", [2, 2, 3, 2]).json()["rows"]) == 4
    assert looked_up() - before == 2


SCAN = f"{TABLES}/staged/rows:scan"


@pytest.mark.parametrize("url", [SCAN, f"{SCAN}?limit=1", f"{TABLES}/staged/rows:count"])
def test_scans_beyond_those_that_have_a_place_are_told_to_come_again(parts: tuple[TestClient, Parts], url: str) -> None:
    client, opened = parts
    with ExitStack() as others:
        for _ in range(MOST_SCANS):
            others.enter_context(opened.scans.place())
        refused = client.get(url)
        assert (refused.status_code, refused.json()["errorCode"]) == (503, "unavailable")
        assert refused.headers["retry-after"]
        assert [fault["code"] for fault in refused.json()["errors"]] == ["too_many"]
    for _ in range(MOST_SCANS + 1):  # each gives its place back, the long answer at its end
        assert client.get(url).status_code == 200


def test_a_scan_of_more_staged_rows_than_there_is_memory_for_says_what_to_do(parts: tuple[TestClient, Parts]) -> None:
    client, opened = parts
    unread = f"{TABLES}/unread"
    client.post(TABLES, json=new_table("unread", options=QUIET))
    client.post(f"{unread}/batches", json={"records": [{"id": 1, "note": "x" * LARGE}]})
    with opened.scans.place() as other:
        other.take_staged(MOST_STAGED_BYTES - LARGE // 2)
        table = opened.views.current(("shop", "unread"), None)
        with opened.database.reading() as repository:
            unfed = view_of(repository, table.table)
        with pytest.raises(StagingFull, match="consistency=merged"), opened.scans.place() as place:
            loaded(opened.warehouse, unfed, place)
    with opened.scans.place() as place:
        assert loaded(opened.warehouse, unfed, place).index.batches


@pytest.mark.slow(reason="writes and reads rows as large as they may be")
def test_a_page_of_a_scan_ends_before_it_is_too_large(parts: tuple[TestClient, Parts]) -> None:
    """Rows of nulls, small in memory: as JSON each has 50 KB of names."""
    client, _ = parts
    names = [f"{number}".ljust(250, "n") for number in range(200)]
    fields = [{"name": "id", "type": "BIGINT"}, *({"name": name, "type": "INT"} for name in names)]
    client.post(TABLES, json=new_table("named", fields=fields, primaryKeys=["id"], options=QUIET))
    client.post(f"{TABLES}/named/batches", json={"records": [{"id": number} for number in range(1500)]})
    found, query = 0, {"limit": "100000"}
    for _ in range(2):
        page = client.get(f"{TABLES}/named/rows:scan", params=query)
        assert len(page.content) <= MOST_BYTES
        found += len(page.content.splitlines())
        query |= {"pageToken": page.headers.get("keyfold-next-page", "")}
    assert found == 1500
    assert query["pageToken"] == ""


def test_a_scan_that_finds_nothing_tells_all_along_that_it_goes_on(parts: tuple[TestClient, Parts]) -> None:
    """Empty pieces let the server notice a client that has gone."""
    opened = parts[1]
    view = opened.views.current(("shop", "merged"), None)
    for kind, header in ((NDJSON, b""), ("text/csv", b"id,note\r\n")):
        pieces = [*written(opened.warehouse, read_scan(view, None, ["note.eq.none"]), kind)]
        assert (b"".join(pieces), pieces[-1]) == (header, b"")


def slow(pieces: Iterable[bytes], closed: list[str]) -> Response:
    """An answer that takes longer than it may to go out whole."""

    def stream() -> Generator[bytes]:
        try:
            yield from pieces
        finally:
            closed.append("stream")

    ticks = count(0, 2)
    with ExitStack() as held:
        held.callback(closed.append, "place")
        return whole_or_streamed(stream(), NDJSON, {}, held, lambda: float(next(ticks)))


def test_an_answer_that_takes_long_is_streamed_and_gives_its_place_back_at_the_end() -> None:
    closed: list[str] = []
    answer = slow([b"a", b"", b"b", b"c"], closed)
    assert isinstance(answer, StreamingResponse)
    assert not closed
    sent: list[Message] = []

    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    anyio.run(answer, {"type": "http"}, receive, send)
    assert b"".join(message.get("body", b"") for message in sent) == b"abc"
    assert closed == ["stream", "place"]


def test_an_answer_whose_client_goes_lets_go_of_what_it_reads() -> None:
    """At once: what only a collection of garbage ends would have files and rows in memory until then."""
    closed: list[str] = []
    answer = slow(repeat(b"a"), closed)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        await anyio.sleep(0)

    gc.disable()
    try:
        anyio.run(answer, {"type": "http"}, receive, send)
        assert closed == ["stream", "place"]
    finally:
        gc.enable()


def test_a_page_token_that_no_page_gave_reads_no_batches(parts: tuple[TestClient, Parts]) -> None:
    client, opened = parts
    table = opened.views.current(("shop", "staged"), None).table
    token = PageToken(table.id, 0, 0, 1, 2**40, 1, "", BEGINNING)
    assert client.get(SCAN, params={"pageToken": token.text}).json()["errors"][0]["code"] == "not_a_position"
