"""The metrics of a process without an API, on a port of this machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer

logger = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
_HOSTS: Final = (LOOPBACK, "localhost")
_PATH: Final = "/metrics"
_PLAIN: Final = "text/plain; charset=utf-8"
Exposed = Callable[[str], tuple[bytes, str]]
Environment = Mapping[str, Any]


class _Quiet(WSGIRequestHandler):
    """A request handler with a timeout, without a line in the log."""

    timeout = 10.0

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def metrics_port(port: int, exposed: Exposed) -> Iterator[int]:
    """Serve ``GET /metrics`` on 127.0.0.1 while the block runs; yield the port, a free one for 0.

    ``exposed`` makes the text for an Accept header, and its media type. Raise ``OSError`` if the port is taken.

    It needs no token, so only this machine can reach it, and only by its own name, which prevents DNS rebinding.
    """
    server = make_server(LOOPBACK, port, _application(exposed), ThreadingWSGIServer, _Quiet)
    thread = threading.Thread(target=server.serve_forever, name="metrics-port", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def _application(exposed: Exposed) -> Callable[[Environment, Callable[..., Any]], Iterable[bytes]]:
    def answer(environment: Environment) -> tuple[str, bytes, str]:
        if environment.get("HTTP_HOST", "").partition(":")[0] not in _HOSTS:
            return "403 Forbidden", f"name this machine as the host: {' or '.join(_HOSTS)}\n".encode(), _PLAIN
        if environment["PATH_INFO"] != _PATH:
            return "404 Not Found", f"there is {_PATH} here and nothing else\n".encode(), _PLAIN
        if environment["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", b"GET is all that this port takes\n", _PLAIN
        return "200 OK", *exposed(environment.get("HTTP_ACCEPT", ""))

    def application(environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        status, body, media_type = answer(environment)
        headers = [("Content-Type", media_type), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        start(status, headers)
        return [b"" if environment["REQUEST_METHOD"] == "HEAD" else body]

    return application
