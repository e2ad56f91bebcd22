"""Streamed answers, which hold their resources until they are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.core.table.upkeep.damage import DamagedFile
from app.http.parts import Parts
from app.services.shared.damage import failure_of

Clock = Callable[[], float]
_WHOLE_BYTES: Final = 2**20  # a shorter answer is sent whole, with its length
_WHOLE_SECONDS: Final = 5.0  # unless it takes longer


class _Stream(StreamingResponse):
    """An answer that holds its place until it is sent, or the client has gone."""

    def __init__(self, pieces: Iterator[bytes], media_type: str, headers: dict[str, str], held: ExitStack) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._held:
            await super().__call__(scope, receive, send)


def whole_or_streamed(
    stream: Generator[bytes], media_type: str, headers: dict[str, str], held: ExitStack, clock: Clock = time.monotonic
) -> Response:
    """Return the body, streamed if it is long or slow. A failure before ``_WHOLE_BYTES`` are produced becomes an error
    with a status.

    A stream keeps the resources ``held``, and is closed as soon as the client disconnects, not when it is
    garbage-collected.
    """
    begun: list[bytes] = []
    until = clock() + _WHOLE_SECONDS
    while (piece := next(stream, None)) is not None:
        begun.append(piece)
        if sum(map(len, begun)) > _WHOLE_BYTES or clock() > until:
            held.callback(stream.close)
            return _Stream(chain(begun, stream), media_type, headers, held.pop_all())
    return Response(b"".join(begun), media_type=media_type, headers=headers)


def noted(parts_open: Parts, stream: Iterator[bytes]) -> Generator[bytes]:
    """Yield the same pieces, and record damage that ends an answer after its status was sent."""
    try:
        yield from stream
    except DamagedFile as error:
        raise failure_of(parts_open.database, error) from error
