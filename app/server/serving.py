"""The processes of ``keyfold serve``: they answer requests on one port, and merge."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.abc import MetaPathFinder
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.main import Running, create_app
from app.server.certificates import Certificate
from app.server.connections import ConnectionBounds, Connections, StrictHttp
from app.server.processes import Role
from app.settings import Settings
from app.telemetry.metrics import Metrics
from app.worker import Worker

logger = logging.getLogger(__name__)
_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75
# Requests have this long to end when the service stops.
_STOP_SECONDS = 5
_TICKS_A_SECOND = 10  # as uvicorn counts them
WORKER = "worker"  # the process that merges
_BOUNDS = ConnectionBounds()
# Everything else has this long to end after that.
END_SECONDS = 15


class _WithoutPandas(MetaPathFinder):
    """Hides pandas. PyArrow loads an installed pandas for its types, which costs half a second of the first upload,
    and memory. Only PySpark needs it, in the process that merges.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Hide pandas; None leaves other modules to other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError("a process that serves does without pandas", name=fullname)


class StoppingServer(uvicorn.Server):
    """Stops without waiting for requests that follow a changelog or wait for a merge; other requests get
    ``stop_seconds``.

    With a ``certificate`` it speaks TLS, and reloads changed files. It takes a client's address and scheme from
    ``trusted_proxies``. Threads that are still running are ended with the process after another ``END_SECONDS``.
    """

    def __init__(
        self,
        app: FastAPI,
        bounds: ConnectionBounds = _BOUNDS,
        stop_seconds: int = _STOP_SECONDS,
        certificate: Certificate | None = None,
        trusted_proxies: str = "",
    ) -> None:
        self._certificate = certificate
        self._signalled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        config = uvicorn.Config(
            app,
            http=partial(StrictHttp, connections=Connections(bounds)),  # type: ignore[arg-type]  # it is only called
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context(),
            proxy_headers=bool(trusted_proxies),  # uvicorn's default is to trust this machine
            forwarded_allow_ips=trusted_proxies,
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=stop_seconds,
            # Longer than clients and load balancers keep an idle connection (5 s and 60 s are common). The
            # client must close first, else its next request meets a connection that is just being closed.
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and exclude the application's objects from garbage collection, which would delay answers."""
        await super().startup(sockets)
        gc.freeze()

    async def main_loop(self) -> None:
        """Serve until a signal comes, with a tick a second. uvicorn's ten ticks take a third of the CPU of an idle
        process.
        """
        self._loop, counter = asyncio.get_running_loop(), 0
        while not await self.on_tick(counter):
            counter += _TICKS_A_SECOND
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), 1.0)

    async def on_tick(self, counter: int) -> bool:
        """Return uvicorn's own result, and load a new certificate if its files changed: two calls of stat."""
        if self._certificate is not None:
            self._certificate.renew()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal, without waiting for the next tick."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal stops the process."""
        try:
            super().run(sockets)
        finally:
            faulthandler.cancel_dump_traceback_later()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let waiting requests end, then stop as uvicorn does."""
        # Written in C: it needs no turn of the interpreter's lock, and says which thread does not end.
        most = (self.config.timeout_graceful_shutdown or 0) + END_SECONDS
        faulthandler.dump_traceback_later(most, exit=True, file=sys.__stderr__ or sys.stderr)
        app: FastAPI = self.config.app  # type: ignore[assignment]  # uvicorn takes any application
        app.state.parts.heads.stop()
        await super().shutdown(sockets)


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the certificate to show; None if plain HTTP is spoken."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


def run_server(app: FastAPI, settings: Settings, listener: socket.socket) -> None:
    """Answer requests until SIGTERM or SIGINT."""
    bounds = ConnectionBounds(settings.max_connections, settings.head_seconds, settings.silence_seconds)
    certificate = certificate_of(settings)
    server = StoppingServer(app, bounds, settings.stop_seconds, certificate, settings.trusted_proxies)
    server.run(sockets=[listener])


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Return a listener for each of ``count`` processes, all on one port. Raise ``OSError`` if another program has
    it.

    Linux distributes connections among listeners of one port. Elsewhere the processes share one.
    """
    first = _bound(host, port)
    if count == 1 or sys.platform != "linux":
        first.listen(_BACKLOG)  # clients that connect during the start wait instead of being refused
        return [first] * count
    port = first.getsockname()[1]  # nothing else listens on it
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
    """Return a process for each listener, and one that merges unless merges are left to other services."""
    names = [f"api-{number}" for number in range(1, len(listeners) + 1)]
    app = create_app(settings, [*names, WORKER])
    metrics: Metrics = app.state.metrics

    def serve(name: str, listener_of_process: socket.socket) -> None:
        metrics.take(name)
        sys.meta_path.insert(0, _WithoutPandas())
        for other in listeners:
            if other is not listener_of_process:
                other.close()
        run_server(app, settings, listener_of_process)

    def merge() -> None:
        metrics.take(WORKER)
        for listener in listeners:
            listener.close()
        work(settings, settings.workers, lambda _: None, metrics)

    serving = [
        Role(f"API process {name}", partial(serve, name, listener_of_process))
        for name, listener_of_process in zip(names, listeners, strict=True)
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
