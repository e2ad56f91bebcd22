"""What the processes of ``keyfold serve`` do: answer requests on one port, and merge."""

from __future__ import annotations

import faulthandler
import logging
import mmap
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder

import uvicorn
from fastapi import FastAPI

from app.connections import ConnectionBounds, Connections, StrictHttp
from app.main import Running, create_app
from app.processes import Role
from app.settings import Settings
from app.worker import Worker

logger = logging.getLogger(__name__)
_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 75
_STOP_SECONDS = 5  # that requests have to end when the service stops
_BOUNDS = ConnectionBounds()
END_SECONDS = 15  # that everything else has then
_READY_SECONDS = (0.2, 2.0)  # how often Spark is asked before, and after, it first answered


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

    What does not end then, a thread that works on, ends with the process after ``END_SECONDS`` more.
    """

    def __init__(
        self,
        app: FastAPI,
        bounds: ConnectionBounds = _BOUNDS,
        stop_seconds: int = _STOP_SECONDS,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=partial(StrictHttp, connections=Connections(bounds)),  # type: ignore[arg-type]  # it is only called
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=stop_seconds,
            # Longer than clients and load balancers keep an idle connection (5 s and 60 s are common): whoever lets go
            # first must be the one that sends, else a request meets a connection that is just being closed.
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the process is told to stop."""
        try:
            super().run(sockets)
        finally:
            faulthandler.cancel_dump_traceback_later()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets them end, then stops as uvicorn does."""
        # Written in C: it needs no turn of the interpreter's lock, and tells which thread does not end.
        most = (self.config.timeout_graceful_shutdown or 0) + END_SECONDS
        faulthandler.dump_traceback_later(most, exit=True, file=sys.__stderr__ or sys.stderr)
        app: FastAPI = self.config.app  # type: ignore[assignment]  # uvicorn takes any application
        app.state.parts.heads.stop()
        await super().shutdown(sockets)


def server_of(app: FastAPI, settings: Settings) -> StoppingServer:
    """What serves ``app`` as ``settings`` say."""
    bounds = ConnectionBounds(settings.max_connections, settings.head_seconds, settings.silence_seconds)
    return StoppingServer(app, bounds, settings.stop_seconds)


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
    spark = mmap.mmap(-1, mmap.PAGESIZE)  # its first byte: whether Spark answers; shared by the forks
    app = create_app(settings, lambda: not settings.workers or spark[0] == 1)

    def serve(mine: socket.socket) -> None:
        sys.meta_path.insert(0, _WithoutPandas())
        for other in listeners:
            if other is not mine:
                other.close()
        server_of(app, settings).run(sockets=[mine])

    def tell(ready: bool) -> None:  # the only argument
        spark[0] = ready

    def merge() -> None:
        for listener in listeners:
            listener.close()
        tell(False)
        work(settings, settings.workers, lambda _: None, ready=tell)

    serving = [Role(f"API process {number}", partial(serve, mine)) for number, mine in enumerate(listeners, start=1)]
    return [*serving, Role("the merge worker", merge, stage=1)] if settings.workers else serving


def work(
    settings: Settings,
    workers: int,
    started: Callable[[Worker], None],
    ready: Callable[[bool], None] | None = None,
) -> None:
    """Merge until SIGTERM or SIGINT; ``ready`` is told again and again whether Spark answers."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    running = Running(settings, workers=workers)
    running.start()
    started(running.workers[0])
    answers = False
    while not ended.wait(None if ready is None else _READY_SECONDS[answers]):
        if ready is not None and running.executor is not None:
            answers = running.executor.ready()
            ready(answers)
    running.stop()
