"""Live changelogs: server-sent events that can be resumed at any id."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from app.api.shared.deps import DatabaseDep, WarehouseDep
from app.api.shared.problems import problem_text
from app.core.errors import KeyfoldError, Resource, not_found
from app.core.table.history import Table
from app.services.snapshots.changelogs import Changes, Position, changes_from
from app.services.snapshots.heads import Dropped, Heads, Stopped

Lines = Callable[[Changes], Iterable[str]]


@dataclass(frozen=True)
class Following:
    """The changes that one client follows: from ``start``, to the end of snapshot ``last`` or without end. A comment
    is sent after ``heartbeat_seconds`` without an event. ``check_reader`` raises if the client has lost access to the
    table.
    """

    database: DatabaseDep
    warehouse: WarehouseDep
    table: Table
    heads: Heads
    start: Position
    last: int | None
    check_reader: Callable[[], Awaitable[None]]
    heartbeat_seconds: float = 15.0


async def events(request: Request, following: Following, lines: Lines) -> AsyncIterator[bytes]:
    """Yield an event for each change, whose id is the position after it, and one for each snapshot without changes. A
    ``schema`` event names the schema of the events after it.

    Comments are sent while nothing changes. The stream ends when the client disconnects or the service stops. It ends
    with an ``error`` event, which has the problem, when the table is dropped, the next changes have expired, or the
    client's token was revoked or has expired.
    """
    try:
        with following.heads.following(following.table.id):
            yield b": follows\n\n"
            async for piece in _followed(following, lines):
                yield piece
    except Stopped:
        return
    except Dropped:
        yield _failed(request, not_found(Resource.TABLE, following.table.full_name))
    except KeyfoldError as error:
        yield await run_in_threadpool(_failed, request, error)


async def _followed(following: Following, lines: Lines) -> AsyncIterator[bytes]:
    place, last, schema_id = following.start, following.last, None
    while last is None or place.snapshot <= last:
        head = await following.heads.newer(following.table.id, place.snapshot - 1, following.heartbeat_seconds)
        await following.check_reader()
        if head is None:
            yield KEEPALIVE_COMMENT
            continue
        until = head if last is None else min(head, last)
        pages = changes_from(following.database, following.warehouse, following.table, place, until)
        while (changes := await run_in_threadpool(_next, pages)) is not None:
            following.heads.check()
            place = changes.after(len(changes.rows))
            if changes.table.schema_id != schema_id:
                schema_id = changes.table.schema_id
                named = json.dumps({"id": changes.table.id, "schemaId": schema_id}, separators=(",", ":"))
                yield format_sse_event(data_str=named, event="schema", id=changes.start.text)
            encoded = await run_in_threadpool(_encoded, changes, lines)
            changes = None  # for a slow reader only the text stays in memory
            yield encoded


def _next(pages: Iterator[Changes]) -> Changes | None:
    return next(pages, None)


def _failed(request: Request, error: KeyfoldError) -> bytes:
    return format_sse_event(data_str=problem_text(request, error), event="error")


def _encoded(changes: Changes, lines: Lines) -> bytes:
    if not changes.rows:
        event_text = json.dumps({"_snapshot": changes.start.snapshot, "kind": changes.kind.value})
        return format_sse_event(data_str=event_text, event="snapshot", id=changes.after(0).text)
    numbered = enumerate(lines(changes), start=1)
    return b"".join(format_sse_event(data_str=line, id=changes.after(count).text) for count, line in numbered)
