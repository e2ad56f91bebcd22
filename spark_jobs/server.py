"""The embedded Spark Connect server: a child JVM on loopback that ends with the process that started it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from app.core.errors import Unavailable
from spark_jobs.java import MODULE_FLAGS, find_java, spark_jars
from spark_jobs.leftovers import SUPERVISOR, end_what_is_left
from spark_jobs.scratch import new_scratch

_LAST_WORDS_SECONDS: Final = 10.0
HEAP_BYTES: Final = 512 * 2**20  # the JVM schedules; rows never reach it

_LOCAL = re.compile(r"local(\[[^\[\]]+\])?")
_JVM_LINE = re.compile(r"keyfold-jvm (\d+)$")  # the supervisor's own
_PORT_LINE = re.compile(r"server started at: .*:(\d+)\s*$")

# The shell, not Python, owns the JVM: after SIGKILL nothing in this process runs any more, but the
# kernel closes its end of the pipe, and `read` sees that on every Unix. Then all of the group is killed at once: rows
# are in files by then or their merge is done again, and Spark's own way to end takes a second or two. Python workers
# have a group that ends when their JVM does. With ``setpriv`` (util-linux) the JVM ends with its shell, too.
_SUPERVISOR_SCRIPT = """
exec 3<&0
command -v setpriv >/dev/null && set -- setpriv --pdeathsig KILL "$@"
"$@" 3<&- </dev/null &
jvm=$!
echo "keyfold-jvm $jvm"
{
  while read -r _; do :; done
  kill -KILL 0
} <&3 >/dev/null 2>&1 &
exec 3<&-
wait "$jvm"
kill -KILL 0
"""

# The one INFO line that goes to standard output names the port that the system chose.
_LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file

appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:keyfold.log}
appender.file.filePattern = ${sys:keyfold.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}{UTC} %p %c{1}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3

appender.port.type = Console
appender.port.name = port
appender.port.layout.type = PatternLayout
appender.port.layout.pattern = %m%n

logger.port.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.port.level = info
logger.port.appenderRef.port.ref = port
"""


# Concurrent jobs share the cores: a small merge does not wait until a long compaction has started its last task.
_POOLS = """\
<?xml version="1.0"?>
<allocations>
  <pool name="default"><schedulingMode>FAIR</schedulingMode></pool>
</allocations>
"""


# What the JVM gets of this process's environment. The rest is the service's own (passwords, tokens): what users send
# passes through languages of Spark and Hadoop that can name a variable. SPARK_* and PYSPARK_* variables would also
# override what is set here.
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"),
    "PYTHONPATH",  # of the Python workers
    # What opens the bucket of the warehouse, as AWS's tools find it; tasks read and write it.
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CA_BUNDLE"),
    "AWS_EC2_METADATA_DISABLED",
)


class EmbeddedServer:
    """A Spark Connect server of the installed PySpark's jars, in a child JVM that listens on 127.0.0.1 only.

    ``folder`` holds its log (``spark.log``, WARN and above), warehouse and scratch files. ``master`` is Spark's
    ``spark.master``; ``heap_bytes`` the JVM's largest heap; ``java`` the program to run (default: ``find_java()``);
    ``java_options`` are added to ours; ``umask`` applies to the files that it writes.

    Clients need ``remote``, which carries a random token; the token is given to the JVM in its environment, so it is
    neither in a command line nor in a log. The ports through which Spark's own processes talk (driver, block manager)
    require a secret, which the JVM generates and never shares. All methods may be called from any thread. The JVM ends
    when this process ends, however it ends.
    """

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[*]",
        heap_bytes: int | None = None,
        java: Path | None = None,
        java_options: Sequence[str] = (),
        umask: int = 0o077,
    ) -> None:
        self.folder = folder.absolute()
        self.master = master
        self.heap_bytes = heap_bytes or HEAP_BYTES
        self._java = java
        self._java_options = tuple(java_options)
        self._umask = umask
        self._lock = threading.RLock()
        self._stopped = False
        self._process: subprocess.Popen[str] | None = None
        self._listening: threading.Thread | None = None
        self._scratch: Path | None = None
        self._token = ""
        self._port: int | None = None
        self._jvm: int | None = None
        self._answered = threading.Event()
        self._said: deque[str] = deque(maxlen=20)
        _close_pipe_in_forks(self)

    def __repr__(self) -> str:
        state = "stopped" if not self.alive else "starting" if self._port is None else f"port {self._port}"
        return f"<EmbeddedServer in {self.folder}: {state}>"

    @property
    def alive(self) -> bool:
        """Whether the JVM runs; it may still be starting (see ``ready``)."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether the JVM runs and takes connections."""
        return self._port is not None and self.alive

    @property
    def pid(self) -> int | None:
        """The process id of the JVM's supervisor, which is also its process group; None when never started."""
        return None if self._process is None else self._process.pid

    @property
    def jvm_pid(self) -> int | None:
        """The process id of the JVM itself; None while there is none."""
        return self._jvm if self.alive else None

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1. Raise ``Unavailable`` while the server is not ready."""
        port = self._port
        if port is None or not self.alive:
            raise Unavailable("The embedded Spark server is not ready. Wait a few seconds and retry.")
        return port

    @property
    def remote(self) -> str:
        """The Spark Connect URL with its token, for any PySpark client; it changes with every start.

        The host is ``localhost``, because PySpark sends a token without TLS only to a host of exactly that name.
        Raise ``Unavailable`` while the server is not ready.
        """
        return f"sc://localhost:{self.port}/;token={self._token}"

    @property
    def scratch(self) -> Path:
        """Where Spark's temporary files are; gone with the server. Raise ``Unavailable`` while it does not run."""
        if self._scratch is None:
            raise Unavailable("The embedded Spark server does not run.")
        return self._scratch

    @property
    def log(self) -> Path:
        """The server's log file; rolled files are in the same folder, with ``.1`` to ``.3``."""
        return self.folder / "spark.log"

    def start(self) -> None:
        """Start the JVM unless it runs, and return at once; a server that died is restarted with another token.

        Raise ``Unavailable`` if there is no Java or it cannot be run, and after ``stop``.
        """
        with self._lock:
            if self._stopped:
                raise Unavailable("The embedded Spark server was stopped.")
            if self.alive:
                return
            self._forget()
            end_what_is_left(self.log)
            java = self._java or find_java()
            self._scratch = new_scratch(self.folder)
            self._token = secrets.token_urlsafe(32)
            (self.folder / "log4j2.properties").write_text(_LOGGING)
            (self.folder / "pools.xml").write_text(_POOLS)
            with open(self._errors, "w") as errors:
                process = self._spawn(java, self._scratch, errors.fileno())
            self._process = process
            self._listening = threading.Thread(
                target=self._listen, args=(process, self._answered, self._said), name="spark-server-output", daemon=True
            )
            self._listening.start()

    def wait_ready(self, timeout_seconds: float, on_progress: Callable[[str], None] | None = None) -> None:
        """Wait until the server takes connections; ``on_progress`` is called about once a second.

        Raise ``Unavailable``, with the end of the JVM's own messages, if it ended or ``timeout_seconds`` passed.
        """
        began = time.monotonic()
        report = on_progress or (lambda _: None)
        while not self.ready:
            waited = time.monotonic() - began
            if not self.alive:
                raise Unavailable(f"The embedded Spark server ended while it started. {self._last_words()}")
            if waited > timeout_seconds:
                raise Unavailable(f"The embedded Spark server did not start in {waited:.0f} s. {self._last_words()}")
            report(f"Spark is starting ({waited:.0f} s)")
            self._answered.wait(min(1.0, max(0.05, timeout_seconds - waited)))
        report(f"Spark is ready after {time.monotonic() - began:.0f} s")

    def stop(self) -> None:
        """Kill the JVM, and remove its scratch files; it is not started again. Stopping twice does nothing."""
        with self._lock:
            self._stopped = True
            self._forget()

    def _spawn(self, java: Path, scratch: Path, errors: int) -> subprocess.Popen[str]:
        command = [str(java), *self._flags(scratch), "org.apache.spark.sql.connect.service.SparkConnectServer"]
        try:
            return subprocess.Popen(  # noqa: S603  # the command is built here; its parts are arguments, never shell text
                ["/bin/sh", "-c", _SUPERVISOR_SCRIPT, SUPERVISOR, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
                umask=self._umask,
            )
        except OSError as error:
            raise Unavailable(f"The embedded Spark server cannot be started: {error}.") from error

    def _environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": self._token,
            "SPARK_HOME": str(spark_jars().parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def _flags(self, scratch: Path) -> list[str]:
        return [
            *MODULE_FLAGS,
            f"-Xmx{self.heap_bytes}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            # The classes are those of the installed wheel. To verify each is a fifth of the time to start.
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:-BytecodeVerificationRemote",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            f"-XX:ErrorFile={self.folder}/java-crash-%p.log",
            *(f"-D{key}={value}" for key, value in self._properties(scratch).items()),
            *self._java_options,
            "-cp",
            f"{spark_jars()}/*",
        ]

    def _properties(self, scratch: Path) -> dict[str, str]:
        return {
            "java.io.tmpdir": str(scratch),
            "java.awt.headless": "true",
            "user.timezone": "UTC",
            "keyfold.log": str(self.log),
            "log4j2.configurationFile": (self.folder / "log4j2.properties").as_uri(),
            "spark.app.name": "keyfold",
            "spark.master": self.master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.connect.progress.reportInterval": "500ms",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": (self.folder / "pools.xml").as_uri(),
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.python.daemon.module": "spark_jobs.daemon",
            "spark.sql.session.timeZone": "UTC",
            **self._authentication(),
        }

    def _authentication(self) -> dict[str, str]:
        """Return the settings of Spark's authentication. With a local master the JVM generates the secret; for other
        masters the operator sets one that all of Spark's processes share (docs/security.md).
        """
        return {"spark.authenticate": "true"} if _LOCAL.fullmatch(self.master) else {}

    def _listen(self, process: subprocess.Popen[str], answered: threading.Event, lines: deque[str]) -> None:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if self._process is not process:
                continue
            if matched := _JVM_LINE.match(line):
                self._jvm = int(matched[1])
            elif matched := _PORT_LINE.search(line):
                self._port = int(matched[1])
                answered.set()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()
        answered.set()

    def _forget(self) -> None:
        process, self._process, self._port, self._jvm = self._process, None, None, None
        self._answered, self._said = threading.Event(), deque(maxlen=20)
        if process is not None and self._listening is not None:
            _end(process)
            self._listening.join(_LAST_WORDS_SECONDS)  # the end of its output is the end of the JVM
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    @property
    def _errors(self) -> Path:
        return self.folder / "spark-stderr.log"

    def _last_words(self) -> str:
        # The JVM reports on standard output why it does not start, and on standard error later failures.
        lines = [*self._said, *_tail(self._errors), *_tail(self.log)]
        return f"See {self.log} and {self._errors}. {' | '.join(lines[-6:])}".rstrip()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()  # a watcher whose shell has ended ends, too
    process.wait()


def _tail(path: Path, most: int = 4096) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def _close_pipe_in_forks(server: EmbeddedServer) -> None:
    """Close the pipe in a forked child, which would otherwise keep the JVM alive after its parent."""
    weak = weakref.ref(server)

    def close() -> None:
        forked = weak()
        if forked is not None and forked._process is not None and forked._process.stdin is not None:
            forked._process.stdin.close()
            forked._process = None

    os.register_at_fork(after_in_child=close)
