"""Compressed answers: zstd, else gzip, as the caller accepts (RFC 9110, 8.4)."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette_compress import CompressMiddleware, add_compress_type

# Smaller answers are not worth compressing.
LEAST_BYTES: Final = 1024
_GZIP_LEVEL: Final = 4
_ZSTD_LEVEL: Final = 3
_CODINGS: Final = (b"zstd", b"gzip")
_ENCODED: Final = re.compile(rb'--(?:gzip|zstd)"')
_TAKEN: Final = b"accept-encoding"
_KNOWN, _SEEN = b"if-none-match", b"if-match"
for _media_type in ("application/x-ndjson", "application/problem+json", "text/csv"):
    add_compress_type(_media_type)


class Compressed:
    """Compresses text above a minimum length; Arrow streams and Parquet are sent unchanged.

    A compressed answer is another representation, so its ETag is another one (RFC 9110, 8.8.3.3): ``"x--gzip"`` for
    ``"x"``. In the conditions of a request it is converted back to ``"x"``. A 304 has the ETag that the caller sent
    (RFC 9110, 15.4.5), so that a cache finds its copy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._compressing = CompressMiddleware(
            app, minimum_size=LEAST_BYTES, brotli=False, gzip_level=_GZIP_LEVEL, zstd_level=_ZSTD_LEVEL
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        names = [name for name, _ in scope["headers"]] if scope["type"] == "http" else []
        if _SEEN in names:  # a condition from a compressed answer is compared as that of the plain one
            _decode(scope, _SEEN)
        if _TAKEN not in names:
            await self.app(scope, receive, send)
            return
        known = _decode(scope, _KNOWN) if _KNOWN in names else b""

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _tagged(message["headers"], known if message["status"] == 304 else b"")
            await send(message)

        await self._compressing(scope, receive, tagged)


def _decode(scope: Scope, condition: bytes) -> bytes:
    """Remove the encodings from the ETags of a condition; return the original header."""
    sent = b",".join(value for name, value in scope["headers"] if name == condition)
    scope["headers"] = [
        (name, _ENCODED.sub(b'"', value)) if name == condition else (name, value) for name, value in scope["headers"]
    ]
    return sent


def _tagged(headers: list[tuple[bytes, bytes]], known: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers with each name of ``Vary`` once, and with the ETag of their encoding, or else the ``known``
    one.
    """
    coding = next((value for name, value in headers if name.lower() == b"content-encoding"), None)
    return [(name, _rewritten(name.lower(), value, coding, known)) for name, value in headers]


def _rewritten(name: bytes, value: bytes, coding: bytes | None, known: bytes) -> bytes:
    if name == b"etag":
        encoded = (
            value[:-1] + b"--" + coding_name + b'"' for coding_name in (_CODINGS if coding is None else (coding,))
        )
        return next((tag for tag in encoded if coding is not None or tag in known), value)
    return b", ".join(dict.fromkeys(value.split(b", "))) if name == b"vary" else value
