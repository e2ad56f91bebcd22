"""Answers that nobody reads do not fill the memory."""

from __future__ import annotations

import json

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message, Scope

from app.api.shared.outgoing import LARGE_BYTES, Outgoing, Unread

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/rows", "headers": [], "query_string": b""}
BODY = bytes(range(256)) * (4 * LARGE_BYTES // 256) + b"end"


class Client:
    """Takes an answer, from the moment on at which it reads."""

    def __init__(self, *, reads: bool = True) -> None:
        self.messages: list[Message] = []
        self.reads = anyio.Event()
        if reads:
            self.reads.set()

    async def take(self, message: Message) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.body":
            await self.reads.wait()

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def sent(client: Client, unread: Unread, body: bytes = BODY) -> Outgoing:
    outgoing = Outgoing(SCOPE, client.take, b"id", unread)
    await outgoing.send({"type": "http.response.start", "status": 200, "headers": []})
    await outgoing.send({"type": "http.response.body", "body": body})
    return outgoing


def test_a_large_answer_goes_out_in_pieces_and_whole() -> None:
    async def check() -> None:
        client = Client()
        outgoing = await sent(client, Unread())
        assert (client.status, client.body, outgoing.outcome) == (200, BODY, 200)
        assert client.messages[0]["headers"] == [(b"x-request-id", b"id"), (b"x-content-type-options", b"nosniff")]
        assert max(len(message.get("body", b"")) for message in client.messages) == LARGE_BYTES
        assert [message.get("more_body", False) for message in client.messages[1:]] == [True] * 5 + [False]

    anyio.run(check)


def test_where_others_do_not_read_a_large_answer_is_503_and_a_small_one_goes_out() -> None:
    async def check() -> None:
        unread = Unread(2 * len(BODY))
        waiting = [Client(reads=False) for _ in range(2)]
        async with anyio.create_task_group() as tasks:
            for client in waiting:
                tasks.start_soon(sent, client, unread)
            await anyio.wait_all_tasks_blocked()
            late, small = Client(), Client()
            outgoing = await sent(late, unread)
            assert (late.status, outgoing.outcome) == (503, 503)
            assert dict(late.messages[0]["headers"])[b"retry-after"]
            assert [fault["code"] for fault in json.loads(late.body)["errors"]] == ["too_many"]
            await sent(small, unread, b"{}")
            assert (small.status, small.body) == (200, b"{}")
            for client in waiting:
                client.reads.set()
        assert [client.body for client in waiting] == [BODY] * 2
        again = Client()
        await sent(again, unread)
        assert again.status == 200

    anyio.run(check)


def test_an_answer_that_alone_is_larger_than_the_room_goes_out() -> None:
    async def check() -> None:
        client = Client()
        await sent(client, Unread(1))
        assert client.body == BODY

    anyio.run(check)


def test_a_stream_goes_out_as_it_comes() -> None:
    async def check() -> None:
        client = Client()
        outgoing = Outgoing(SCOPE, client.take, b"id", Unread())
        await outgoing.send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"a", b"b"):
            await outgoing.send({"type": "http.response.body", "body": piece, "more_body": True})
        assert (client.body, outgoing.outcome) == (b"ab", 0)
        await outgoing.send({"type": "http.response.body", "body": b""})
        assert outgoing.outcome == 200

    anyio.run(check)


@pytest.mark.parametrize("streams", [False, True])
def test_others_have_their_turns_while_a_large_answer_goes_out(streams: bool) -> None:
    """The client takes all at once, and each piece is compressed before: until then nobody else would be answered."""
    taken: list[Message] = []
    seen: list[int] = []

    async def take(message: Message) -> None:
        taken.append(message)

    async def look() -> None:
        for _ in range(10):
            seen.append(len(taken))
            await anyio.lowlevel.checkpoint()

    async def check() -> None:
        outgoing = Outgoing(SCOPE, take, b"id", Unread())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await anyio.lowlevel.checkpoint()
            await outgoing.send({"type": "http.response.start", "status": 200, "headers": []})
            await outgoing.send({"type": "http.response.body", "body": BODY, "more_body": streams})
            if streams:
                await outgoing.send({"type": "http.response.body", "body": b""})
        assert b"".join(message.get("body", b"") for message in taken) == BODY
        assert {2, 3, 4, 5} <= set(seen)

    anyio.run(check)
