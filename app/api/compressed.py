"""Answers compressed as the caller takes them: zstd, else gzip (RFC 9110, 8.4)."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette_compress import CompressMiddleware, add_compress_type

LEAST_BYTES: Final = 1024  # of an answer that is worth it
_GZIP_LEVEL: Final = 4
_ZSTD_LEVEL: Final = 3
_ENCODED: Final = re.compile(rb'--(?:gzip|zstd)"')
_TAGS: Final = (b"if-none-match", b"if-match")
for _media_type in ("application/x-ndjson", "application/problem+json", "text/csv"):
    add_compress_type(_media_type)


class Compressed:
    """Compresses text of some length; Arrow streams and Parquet go as they are.

    A compressed answer is another representation, so its ETag is another one (RFC 9110, 8.8.3.3): ``"x--gzip"`` for
    ``"x"``, which comes back in conditions and is ``"x"`` again to whoever looks at them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._compressing = CompressMiddleware(
            app, minimum_size=LEAST_BYTES, brotli=False, gzip_level=_GZIP_LEVEL, zstd_level=_ZSTD_LEVEL
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        names = [name for name, _ in scope["headers"]] if scope["type"] == "http" else []
        if b"accept-encoding" not in names:
            await self.app(scope, receive, send)
            return
        if any(name in names for name in _TAGS):
            scope["headers"] = [(name, _plain(name, value)) for name, value in scope["headers"]]

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _tagged(message["headers"])
            await send(message)

        await self._compressing(scope, receive, tagged)


def _plain(name: bytes, value: bytes) -> bytes:
    return _ENCODED.sub(b'"', value) if name in _TAGS else value


def _tagged(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, the ETag that of the encoding that they name, ``Vary`` with each name once."""
    coding = next((value for name, value in headers if name.lower() == b"content-encoding"), None)
    return [(name, _told(name.lower(), value, coding)) for name, value in headers]


def _told(name: bytes, value: bytes, coding: bytes | None) -> bytes:
    if name == b"etag" and coding is not None:
        return value[:-1] + b"--" + coding + b'"'
    return b", ".join(dict.fromkeys(value.split(b", "))) if name == b"vary" else value
