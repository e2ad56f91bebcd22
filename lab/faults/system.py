"""The system that faults strike: real processes on loopback, each started again when it ends, as an init would do."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import SystemRandom

import httpx
import psycopg

from lab.faults.places import Clock, Disk
from spark_jobs.java import MODULE_FLAGS, find_java, spark_jars
from tests.cluster import Node
from tests.postgres import initialized
from tests.service import Client

RESTART_SECONDS = 0.5  # how long an init waits until it starts a process again
START_SECONDS = 120
LEASE_SECONDS = 3
SQLITE, POSTGRES = "sqlite", "postgres"
FOLDER_BYTES = 512 * 2**20  # of a small disk
_PORTS = SystemRandom()  # test processes at the same time must not draw the same ones


class Kept:
    """A process that is started again whenever it ends. ``end_signal`` asks it to end in peace."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        end_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.end_signal = end_signal
        self._start: Callable[[], Node] = lambda: Node(name, folder, list(command), environment)
        self._nodes = [self._start()]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keeps {name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The process, as last started."""
        return self._nodes[-1].pid

    @property
    def starts(self) -> int:
        """How often it was started."""
        return len(self._nodes)

    def send(self, sent: signal.Signals) -> None:
        """A signal to the process alone; one that is gone already does not mind."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, sent)

    def family(self) -> list[int]:
        """The process and all that descend from it, it first."""
        pids = [self.pid]
        for pid in pids:
            pids += children(pid)
        return pids

    def end(self) -> None:
        """End it, in peace if that takes ten seconds at most; nothing of any of its lives is left."""
        self._ended.set()
        self._thread.join()
        self.send(self.end_signal)
        deadline = time.monotonic() + 10
        while lives(self.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        for node in self._nodes:
            node.stop()

    def logs(self) -> Iterator[Path]:
        """What each life has said."""
        return (node.log for node in self._nodes)

    def _keep(self) -> None:
        while not self._ended.wait(0.1):
            if not lives(self.pid) and not self._ended.wait(RESTART_SECONDS):
                self._nodes.append(self._start())


def lives(pid: int) -> bool:
    """Whether the process runs: one that ended without being waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    try:
        pids = [
            int(child) for path in Path(f"/proc/{pid}/task").iterdir() for child in _read(path / "children").split()
        ]
    except FileNotFoundError:
        return []
    return [child for child in pids if lives(child)]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def free_port() -> int:
    """A port of loopback that was free just now, and is none that the system gives away by itself: a JVM takes seconds
    until it listens, and must find the port free again at every restart.
    """
    while True:
        port = _PORTS.randrange(10_000, 32_000)
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


class System:
    """Two API processes, two workers, a Spark Connect server, a catalog; folders, clocks. Without ``spark`` the workers
    fold in Python.

    With SQLite one service has both API processes; with PostgreSQL each is a service with its own data folder.
    """

    def __init__(self, folder: Path, catalog: str, exits: ExitStack, *, spark: bool = True) -> None:
        self.folder = folder
        self.catalog = catalog
        self.clock = Clock.made(folder)
        self.data = Disk.opened(folder / "data", FOLDER_BYTES, exits)
        self.warehouse = Disk.opened(folder / "warehouse", FOLDER_BYTES, exits)
        self.kept: dict[str, Kept] = {}
        # Where the user whom PostgreSQL runs as may go: not below a folder of this process alone.
        self._open_to_all = exits.enter_context(_folder_for_all())
        self.catalog_disk = Disk.opened(self._open_to_all / "catalog", FOLDER_BYTES, exits, 0o755)
        exits.callback(self._end)  # before the folders go
        self._spark_remote = self._start_spark() if spark else None
        self._database_url = self._start_postgres() if catalog == POSTGRES else None
        self._start_services()

    @property
    def folders(self) -> list[Path]:
        """The data folders."""
        return [self.data.path, *self.folder.glob("data-*")]

    @property
    def apis(self) -> list[Kept]:
        """The services, each started as a whole."""
        return [kept for name, kept in self.kept.items() if name.startswith("api")]

    @property
    def workers(self) -> list[Kept]:
        """The workers."""
        return [kept for name, kept in self.kept.items() if name.startswith("worker")]

    def client(self, place: int, timeout: float = 5.0) -> Client:
        """A client of one of the services."""
        return Client(base_url=self.urls[place % len(self.urls)], timeout=timeout, trust_env=False)

    def wait_ready(self) -> None:
        """Returns once every service answers, with catalog, warehouse and Spark."""
        deadline = time.monotonic() + START_SECONDS
        for place in range(len(self.urls)):
            with self.client(place) as client:
                while not _ready(client):
                    assert time.monotonic() < deadline, f"not ready: {self.urls[place]}"
                    time.sleep(0.1)

    def verify(self) -> list[str]:
        """What ``keyfold verify`` says is damaged or missing."""
        environment = {**self._shared, "KEYFOLD_DATA": str(self.data.path)}
        done = subprocess.run(_cli("verify"), env=environment, capture_output=True, text=True, check=False)
        return [] if done.returncode == 0 else [f"keyfold verify: {done.stdout[-2000:]}{done.stderr[-2000:]}"]

    def said(self) -> Iterator[tuple[str, str]]:
        """(process, line) of all logs."""
        for name, kept in self.kept.items():
            for log in kept.logs():
                yield from ((name, line) for line in log.read_text(errors="replace").splitlines())

    def _end(self) -> None:
        for kept in reversed(self.kept.values()):
            kept.send(signal.SIGCONT)
        for kept in reversed(self.kept.values()):
            kept.end()

    def _start_spark(self) -> str:
        folder, port, token = self.folder / "spark", free_port(), secrets.token_urlsafe(16)
        folder.mkdir()
        properties = {
            "java.io.tmpdir": str(folder),
            "spark.app.name": "keyfold-faults",
            "spark.log.level": "WARN",
            "spark.master": "local[2]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.scheduler.mode": "FAIR",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.session.timeZone": "UTC",
        }
        flags = [*MODULE_FLAGS, "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += [f"-D{key}={value}" for key, value in properties.items()]
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        command = [str(find_java()), *flags, "-cp", f"{spark_jars()}/*", main]
        environment = {
            **_inherited("SPARK_", "PYSPARK_", "KEYFOLD_"),
            "SPARK_HOME": str(spark_jars().parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
            "PYSPARK_PYTHON": sys.executable,
        }
        self.kept["spark"] = Kept("spark", command, self.folder, environment)
        return f"sc://localhost:{port}/;token={token}"

    def _start_postgres(self) -> str:
        folder, port = self._open_to_all, free_port()
        server = initialized(self.catalog_disk.path / "server")
        command = [str(server.bin_path / "postgres"), "-D", str(server.pgdata), "-h", "127.0.0.1", "-p", str(port)]
        command += ["-k", "", "-c", "fsync=off", "-c", "max_connections=200"]
        if server.system_user:
            user = pwd.getpwnam(server.system_user)
            ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            command = ["setpriv", *ids, *command]
        environment = {**_inherited("PG", "KEYFOLD_"), **self.clock.environment(folder)}
        self.kept["postgres"] = Kept("postgres", command, self.folder, environment, signal.SIGINT)
        return f"postgresql+psycopg://{server.postgres_user}@127.0.0.1:{port}/postgres"

    def tell_postgres(self, statement: str) -> None:
        """Has PostgreSQL do something, and read its settings again."""
        assert self._database_url is not None
        with psycopg.connect(
            self._database_url.replace("+psycopg", ""), autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            connection.execute(statement)
            connection.execute("SELECT pg_reload_conf()")

    def _start_services(self) -> None:
        shared = {
            **_inherited("SPARK_", "PYSPARK_", "KEYFOLD_", "PYTHONDONTWRITEBYTECODE"),
            **self.clock.environment(self.folder),
            "PYTHONFAULTHANDLER": "1",
            "KEYFOLD_WAREHOUSE": str(self.warehouse.path),
            "KEYFOLD_LEASE_SECONDS": str(LEASE_SECONDS),
            "KEYFOLD_LEAST_FREE_MIB": "0",  # a full disk is to be met, not kept away from
        }
        if self._spark_remote:
            shared["KEYFOLD_SPARK_REMOTE"] = self._spark_remote
        merging = _cli("worker") if self._spark_remote else [sys.executable, "-m", "lab.faults.python_worker"]
        services = 1
        if self._database_url:
            services, shared["KEYFOLD_DATABASE_URL"] = 2, self._database_url
            _migrate(shared)
        self._shared = shared
        ports = [free_port() for _ in range(services)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        for number, port in enumerate(ports, 1):
            data = self.data.path if number == 1 else self.folder / f"data-{number}"
            environment = {**shared, "KEYFOLD_WORKERS": "0", "KEYFOLD_PROCESSES": str(2 // services)}
            command = [*_cli("serve"), "--port", str(port), "--data", str(data)]
            self.kept[f"api-{number}"] = Kept(f"api-{number}", command, self.folder, environment)
        _wait_for(self.urls)  # the embedded catalog is migrated by the service
        for number in (1, 2):
            environment = {**shared, "KEYFOLD_DATA": str(self.data.path)}
            self.kept[f"worker-{number}"] = Kept(f"worker-{number}", merging, self.folder, environment)


def _cli(command: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", command]


def _inherited(*without: str) -> dict[str, str]:
    here = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    return {**here, "PYTHONPATH": str(Path(__file__).parents[2])}


@contextmanager
def _folder_for_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="keyfold-pg-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _migrate(environment: Mapping[str, str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        done = subprocess.run(_cli("migrate"), env=dict(environment), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


def _wait_for(urls: Sequence[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for url in urls:
        while True:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/healthz", trust_env=False).status_code == 200:
                    break
            assert time.monotonic() < deadline, url
            time.sleep(0.1)


def _ready(client: Client) -> bool:
    try:
        return bool(client.get("/readyz").json()["spark"])
    except httpx.HTTPError:
        return False
