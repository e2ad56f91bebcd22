"""Content encodings (RFC 9110 §8.4): bodies are decompressed up to the largest size of a request."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import zstandard

from app.core.errors import FaultCode, Invalid, UnsupportedMediaType, Violation
from app.core.plan.records.bounds import Bounds
from app.storage.staging.spool import Content, Room, Spool

_STEP = 1 << 20
_SENT = 1 << 16
_MOST_CODINGS = 4
_FIX = "send a whole body in this encoding; a zstd window has at most 8 MiB (no --long, no --ultra)"
_SIP = 256  # bytes of zstd: a block of four can become 128 KiB


def decoded(body: Content, encoding: str, bounds: Bounds, room: Room) -> Content:
    """Return ``body`` without the codings that ``Content-Encoding`` lists, in the order in which they were applied.

    It is in a file of the ``room`` if it is too large for the memory.

    Raise ``UnsupportedMediaType`` for another coding, ``TooLarge`` as soon as the output exceeds the bounds, and
    ``Invalid`` for an incomplete stream.
    """
    codings = [coding.strip().lower() for coding in encoding.split(",")]
    applied = [coding for coding in codings if coding not in ("", "identity")]
    unknown = [coding for coding in applied if coding not in ENCODINGS]
    if unknown or len(applied) > _MOST_CODINGS:
        message = f"cannot read Content-Encoding {encoding[:100]!r}; send {' or '.join(ENCODINGS)}"
        raise UnsupportedMediaType(message)
    sent = len(body)
    for coding in reversed(applied):
        with closing(Spool(room)) as spool:
            body = _bounded(ENCODINGS[coding](body), coding, sent, bounds, spool)
    return body


def _bounded(parts: Iterator[bytes], coding: str, sent: int, bounds: Bounds, spool: Spool) -> Content:
    try:
        for part in parts:
            spool.add(part)
            bounds.check_unfolded(spool.size, sent)
            if spool.due:
                spool.spill()
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        message = f"the body is not {coding}: {str(error) or 'it ends too soon'}"
        fault = Violation("", FaultCode.UNREADABLE_BODY, message, _FIX)
        raise Invalid(message, violations=[fault]) from error
    return spool.content()


def _gzip(body: Content) -> Iterator[bytes]:
    place = 0
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            rest = member.unconsumed_tail
            sent = rest or body[place : place + _SENT]
            place += 0 if rest else len(sent)
            part = member.decompress(sent, _STEP)
            if not part and not sent and not member.eof:
                raise EOFError
            yield part
        place -= len(member.unused_data)
        if place >= len(body):
            return


def _zstd(body: Content) -> Iterator[bytes]:
    # A window may take 8 MiB, as RFC 8878 asks every decoder to support, and no more.
    opener = zstandard.ZstdDecompressor(max_window_size=1 << 23)
    place = 0
    while True:
        frame = opener.decompressobj()
        while not frame.eof:
            sent = body[place : place + _SIP]
            if not sent:
                raise EOFError
            place += len(sent)
            yield frame.decompress(sent)
        place -= len(frame.unused_data)
        if place >= len(body):
            return


# The decoder of a coding, which yields parts of bounded size.
ENCODINGS: Mapping[str, Callable[[Content], Iterator[bytes]]] = {"gzip": _gzip, "x-gzip": _gzip, "zstd": _zstd}
