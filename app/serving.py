"""What the processes of ``keyfold serve`` do: answer requests on one port, and merge."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api.problems import refusal
from app.certificates import Certificate
from app.core.errors import Invalid
from app.main import Running, create_app
from app.processes import Role
from app.settings import Settings
from app.telemetry.metrics import Metrics
from app.worker import Worker

logger = logging.getLogger(__name__)
MOST_HEAD_BYTES = 64 * 1024
_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75
_STOP_SECONDS = 5  # that requests have to end when the service stops
_TICKS_OF_RENEWAL = 10  # a second: two calls of stat
WORKER = "worker"  # the process that merges


class StrictHttp(HttpToolsProtocol):
    """uvicorn's HTTP with what httptools leaves out: a bound on the bytes of a request's line and headers, and the 400
    of RFC 9112 §3.2 for a request that has no Host, or two.
    """

    _in_head = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """What came from the client."""
        goes_on = self._in_head
        super().data_received(data)
        if self._in_head and goes_on:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"its line and headers are larger than {MOST_HEAD_BYTES} bytes")

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused as all else is."""
        what = f"the request cannot be read: {msg.removesuffix('.')}; send HTTP/1.1 as RFC 9112 has it"
        answer = refusal(Request({"type": "http", "method": "GET", "path": "/", "headers": []}), Invalid(what))
        lines = [STATUS_LINE[answer.status_code], *(b"%b: %b\r\n" % header for header in answer.raw_headers)]
        self.transport.write(b"".join([*lines, b"connection: close\r\n\r\n", bytes(answer.body)]))
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers ended. What is raised here uvicorn answers with 400."""
        self._in_head = False
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise ValueError("a request names one host")
        super().on_headers_complete()


class _WithoutPandas(MetaPathFinder):
    """Finds no pandas. PyArrow loads it wherever it is installed, to know its types: half a second of the first
    upload's time, and memory. Only PySpark needs it, in the process that merges.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """None leaves the module to the other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError("a process that serves does without pandas", name=fullname)


class StoppingServer(uvicorn.Server):
    """Waits for no one who follows a changelog or waits for a merge, and ``stop_seconds`` for every other request.

    With a ``certificate`` it speaks TLS, and shows another one once its files change. What ``trusted_proxies`` say of
    the address and scheme of a client counts.
    """

    def __init__(
        self,
        app: FastAPI,
        stop_seconds: int = _STOP_SECONDS,
        certificate: Certificate | None = None,
        trusted_proxies: str = "",
    ) -> None:
        self._certificate = certificate
        config = uvicorn.Config(
            app,
            http=StrictHttp,
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context(),
            proxy_headers=bool(trusted_proxies),  # uvicorn's default is to trust this machine
            forwarded_allow_ips=trusted_proxies,
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=stop_seconds,
            # Longer than clients and load balancers keep an idle connection (5 s and 60 s are common): whoever lets go
            # first must be the one that sends, else a request meets a connection that is just being closed.
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        """What uvicorn does ten times a second."""
        if self._certificate is not None and counter % _TICKS_OF_RENEWAL == 0:
            self._certificate.renew()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets them end, then stops as uvicorn does."""
        app: FastAPI = self.config.app  # type: ignore[assignment]  # uvicorn takes any application
        app.state.parts.heads.stop()
        await super().shutdown(sockets)


def certificate_of(settings: Settings) -> Certificate | None:
    """The certificate to show; None where plain HTTP is spoken."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


def run_server(app: FastAPI, settings: Settings, listener: socket.socket) -> None:
    """Answer requests until SIGTERM or SIGINT."""
    server = StoppingServer(app, certificate=certificate_of(settings), trusted_proxies=settings.trusted_proxies)
    server.run(sockets=[listener])


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """A listener for each of ``count`` processes, all on one port. Raises ``OSError`` when another program has it.

    Linux deals connections out among listeners of one port. Elsewhere the processes share one.
    """
    first = _bound(host, port)
    if count == 1 or sys.platform != "linux":
        first.listen(_BACKLOG)  # who connects while the service starts waits instead of being refused
        return [first] * count
    port = first.getsockname()[1]  # nobody else listens on it
    first.close()
    listeners = [_bound(host, port, shared=True) for _ in range(count)]
    for listener in listeners:
        listener.listen(_BACKLOG)
    return listeners


def _bound(host: str, port: int, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Accepted sockets inherit the protocol, and asyncio sets TCP_NODELAY only where it is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    return listener


def roles(settings: Settings, listeners: Sequence[socket.socket]) -> list[Role]:
    """A process for each listener, and one that merges unless merges are left to other services."""
    names = [f"api-{number}" for number in range(1, len(listeners) + 1)]
    app = create_app(settings, [*names, WORKER])
    metrics: Metrics = app.state.metrics

    def serve(name: str, mine: socket.socket) -> None:
        metrics.take(name)
        sys.meta_path.insert(0, _WithoutPandas())
        for other in listeners:
            if other is not mine:
                other.close()
        run_server(app, settings, mine)

    def merge() -> None:
        metrics.take(WORKER)
        for listener in listeners:
            listener.close()
        work(settings, settings.workers, lambda _: None, metrics)

    serving = [
        Role(f"API process {name}", partial(serve, name, mine)) for name, mine in zip(names, listeners, strict=True)
    ]
    return [*serving, Role("the merge worker", merge, stage=1)] if settings.workers else serving


def work(settings: Settings, workers: int, started: Callable[[Worker], None], metrics: Metrics) -> None:
    """Merge until SIGTERM or SIGINT."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    running = Running(settings, workers, metrics)
    running.start()
    started(running.workers[0])
    ended.wait()
    running.stop()
