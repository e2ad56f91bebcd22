"""uvicorn's HTTP with the bounds that a public service needs: on the bytes, fields and seconds of a request's line and
headers, on connections, and on the time that an answer waits for its reader.
"""

from __future__ import annotations

import logging
import resource
from asyncio import BaseTransport, TimerHandle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import httptools
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api.middleware.auth import OPEN_PATHS
from app.api.shared.problems import refusal
from app.core.errors import FaultCode, Invalid, KeyfoldError, TooSlow, Unavailable, Violation

logger = logging.getLogger(__name__)
MOST_HEAD_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 100
_RESERVED: Final = 64  # connections beyond the bound that are accepted: for health checks, and to refuse other requests
_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})  # header fields, and options of ``Connection``
# A process opens about this many files in addition to its connections.
_FILES: Final = 256


@dataclass(frozen=True)
class ConnectionBounds:
    """The most connections of a process, the longest time for the line and headers of a request, and for an answer
    that is not read.
    """

    connections: int = 1000
    head_seconds: float = 10.0
    silence_seconds: float = 60.0


class Connections:
    """The connections of a process. If there are too many, the one that has been idle longest is closed. If all are
    busy, some more are accepted, to refuse their requests.
    """

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds = bounds
        files, needed = raised_open_files(), bounds.connections + _FILES + _RESERVED
        self.most = min(bounds.connections, max(1, files - _FILES - _RESERVED))
        self.scarce = self.most < bounds.connections  # in files, which a process has as its user lets it
        if self.scarce:
            logger.warning(
                "this process may open %d files, so it takes %d connections at a time; let it open %d (ulimit -n, or"
                " LimitNOFILE= of systemd)",
                files,
                self.most,
                needed,
            )
        self._admitted: set[StrictHttp] = set()
        self._waiting: OrderedDict[StrictHttp, None] = OrderedDict()  # of those that are admitted
        self._others: OrderedDict[StrictHttp, None] = OrderedDict()

    def enter(self, connection: StrictHttp) -> bool:
        """Enter a connection; return whether there is room. If not, only a health check is answered, and then it is
        closed.
        """
        if len(self._admitted) >= self.most and self._waiting:
            self._let_go(next(iter(self._waiting)))
        if len(self._admitted) < self.most:
            self._admitted.add(connection)
            self._waiting[connection] = None
            return True
        if len(self._others) >= _RESERVED:
            self._let_go(next(iter(self._others)))
        self._others[connection] = None
        return False

    def _let_go(self, connection: StrictHttp) -> None:
        self.leave(connection)
        connection.transport.close()

    def busy(self, connection: StrictHttp) -> None:
        """Mark the connection as busy with a request."""
        self._waiting.pop(connection, None)

    def wait(self, connection: StrictHttp) -> None:
        """Mark the connection as idle: it may be closed for others."""
        if connection in self._admitted:
            self._waiting[connection] = None

    def leave(self, connection: StrictHttp) -> None:
        """Remove a closed connection."""
        self._admitted.discard(connection)
        self._waiting.pop(connection, None)
        self._others.pop(connection, None)


def raised_open_files() -> int:
    """Raise the limit of open files to the user's hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 2**20


class _Refused(Exception):
    """A request that is answered without the application."""


class StrictHttp(HttpToolsProtocol):
    """uvicorn's HTTP with bounds, and with the 400 of RFC 9112 §3.2 for a request without Host, or with two."""

    def __init__(self, *arguments: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._open_connections = connections
        self._admitted = True
        self._refusal: KeyfoldError | None = None
        self._in_head = False
        self._offered = False  # the request whose headers were parsed last offers another protocol
        self._unread = 0  # bytes in a row that are neither body nor the end of a request's headers
        self._timer: TimerHandle | None = None
        self._reader: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Admit a new client. Its first request has the same time limit as any other."""
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows what asyncio declares
        self._admitted = self._open_connections.enter(self)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the place of a client that has gone."""
        self._open_connections.leave(self)
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data from the client, as uvicorn does, without logging each malformed request."""
        self._unset_keepalive_if_required()
        self._unread += len(data)
        self._feed(data)
        if self.transport.is_closing():
            return
        if self._timer is None and (self._in_head or self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        if self._unread > MOST_HEAD_BYTES:
            what = "its line and headers are" if self._in_head else "what stands between parts of its body is"
            self.send_400_response(f"{what} larger than {MOST_HEAD_BYTES} bytes")

    def _feed(self, data: bytes) -> None:
        """Parse data. At a request that offers a protocol upgrade the parser stops after the headers: they are parsed
        again without the offer, and then the body.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received")
        except httptools.HttpParserUpgrade as stopped:
            if self._offered:
                head, self._offered = self._head_without_offer(), False
                self.parser = httptools.HttpRequestParser(self)
                self._feed(head + data[stopped.args[0] :])

    def _head_without_offer(self) -> bytes:
        """Return the line and headers of the request without ``Upgrade``, also in ``Connection``."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            text = value
            if name == b"connection":
                text = b", ".join(
                    protocol for protocol in map(bytes.strip, value.split(b",")) if protocol.lower() not in _OFFER
                )
            if name not in _OFFER and (text or name != b"connection"):
                lines.append(b"%b: %b" % (name, text))
        return b"\r\n".join([*lines, b"", b""])

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request like any other."""
        if self.transport.is_closing():
            return
        what = f"the request cannot be read: {msg.removesuffix('.')}; send HTTP/1.1 as RFC 9112 has it"
        self._answer(self._refusal or Invalid(what))

    def _answer(self, error: KeyfoldError) -> None:
        """Answer the error, and close the connection."""
        answer = refusal(Request({"type": "http", "method": "GET", "path": "/", "headers": []}), error)
        lines = [STATUS_LINE[answer.status_code], *(b"%b: %b\r\n" % header for header in answer.raw_headers)]
        self.transport.write(b"".join([*lines, b"connection: close\r\n\r\n", bytes(answer.body)]))
        self.transport.close()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field, or a trailer field. uvicorn answers errors from here with 400."""
        if len(self.headers) >= MOST_FIELDS:
            self._refusal = Invalid(f"a request has at most {MOST_FIELDS} header fields; send fewer")
            raise _Refused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete headers."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._offered = True  # RFC 9110 §7.8: a server may ignore the offer
            return
        self._in_head, self._unread = False, 0
        self._stop_timers()
        self._open_connections.busy(self)
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise ValueError("a request names one host")
        if not self._admitted and self.url.partition(b"?")[0].decode("latin-1") not in OPEN_PATHS:
            self._refusal = _full(self._open_connections)
            raise _Refused
        super().on_headers_complete()
        if not self._admitted:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        if self._offered:
            return
        self._unread = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """End the answer, and wait for the next request."""
        super().on_response_complete()
        if not self.pipeline:
            self._open_connections.wait(self)

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(self._open_connections.bounds.head_seconds, self._give_up)

    def _give_up(self) -> None:
        """Close a connection whose next headers did not come in time; answer only if the request has begun."""
        if self._in_head and not self.transport.is_closing():
            seconds = f"{self._open_connections.bounds.head_seconds:g}"
            message = f"the line and headers of the request did not come within {seconds} seconds"
            fault = Violation("", FaultCode.TOO_SLOW, message, "send them together")
            self._answer(TooSlow(message, violations=[fault]))
        self.transport.close()

    def pause_writing(self) -> None:
        """Start the timeout: the client reads more slowly than it is answered."""
        super().pause_writing()
        self._reader = self.loop.call_later(self._open_connections.bounds.silence_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timeout: the client has read."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        super().resume_writing()

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._reader):
            if timer is not None:
                timer.cancel()
        self._timer = self._reader = None


def _full(connections: Connections) -> Unavailable:
    message = f"the process has {connections.most} connections, and all of them are busy; retry in a moment"
    more = "let it open more files (ulimit -n)" if connections.scarce else "run more processes (KEYFOLD_PROCESSES)"
    fix = f"keep fewer connections, or {more}"
    return Unavailable(message, violations=[Violation("", FaultCode.TOO_MANY, message, fix)])
