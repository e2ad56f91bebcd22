"""Content encodings (RFC 9110 §8.4): compressed bodies, opened no further than a request may be large."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Mapping

import zstandard

from app.core.errors import FaultCode, Invalid, UnsupportedMediaType, Violation
from app.core.plan.bounds import Bounds

_STEP = 1 << 20
_MOST_CODINGS = 4
_SIP = 256  # bytes of zstd: a block of four can become 128 KiB


def decoded(body: bytes, encoding: str, bounds: Bounds) -> bytes:
    """``body`` without the codings that ``Content-Encoding`` lists, in the order in which they were applied.

    Raises ``UnsupportedMediaType`` for another coding, ``TooLarge`` as soon as more than the bound has come out, and
    ``Invalid`` for what is no whole stream.
    """
    codings = [coding.strip().lower() for coding in encoding.split(",")]
    applied = [coding for coding in codings if coding not in ("", "identity")]
    unknown = [coding for coding in applied if coding not in ENCODINGS]
    if unknown or len(applied) > _MOST_CODINGS:
        message = f"cannot read Content-Encoding {encoding[:100]!r}; send {' or '.join(ENCODINGS)}"
        raise UnsupportedMediaType(message)
    for coding in reversed(applied):
        body = _bounded(ENCODINGS[coding](body), coding, bounds)
    return body


def _bounded(parts: Iterator[bytes], coding: str, bounds: Bounds) -> bytes:
    opened = bytearray()
    try:
        for part in parts:
            opened += part
            bounds.check_bytes(len(opened))
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        message = f"the body is not {coding}: {error or 'it ends too soon'}"
        fault = Violation("", FaultCode.UNREADABLE_BODY, message, "send what Content-Encoding says, whole")
        raise Invalid(message, violations=[fault]) from error
    return bytes(opened)


def _gzip(body: bytes) -> Iterator[bytes]:
    rest = body
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = member.decompress(rest, _STEP)
            rest = member.unconsumed_tail or (member.unused_data if member.eof else b"")
            if not part and not rest and not member.eof:
                raise EOFError
            yield part
        if not rest:
            return


def _zstd(body: bytes) -> Iterator[bytes]:
    # A window may take 8 MiB, as RFC 8878 asks every decoder to support, and no more.
    opener = zstandard.ZstdDecompressor(max_window_size=1 << 23)
    rest = body
    while True:
        frame = opener.decompressobj()
        source = io.BytesIO(rest)
        while not frame.eof:
            sent = source.read(_SIP)
            if not sent:
                raise EOFError
            yield frame.decompress(sent)
        rest = frame.unused_data + source.read()
        if not rest:
            return


# What undoes a coding, in parts of bounded size.
ENCODINGS: Mapping[str, Callable[[bytes], Iterator[bytes]]] = {"gzip": _gzip, "x-gzip": _gzip, "zstd": _zstd}
