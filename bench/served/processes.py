"""Child processes that serve: where they listen, what CPU and memory they take with all their children."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Server:
    """A process that listens at ``url``, which is empty where it is no HTTP; with it count its children."""

    url: str
    process: psutil.Process

    @property
    def family(self) -> list[psutil.Process]:
        """The process and all below it that have not ended."""
        return [self.process, *filter(_lives, self.process.children(recursive=True))]

    def cpu_seconds(self) -> float:
        """What they and those that have ended have taken so far, in the kernel too; the kernel counts in hundredths."""
        return cpu_of_family(self.family)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended meanwhile
        return False


def cpu_seconds(process: psutil.Process) -> float:
    """What a process without its children has taken so far, in the kernel too."""
    times = process.cpu_times()
    return float(times.user + times.system)


def cpu_of_family(processes: Iterable[psutil.Process]) -> float:
    """Return what processes and their children that have ended have taken so far; those that are gone count nothing."""
    taken = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            taken += times.user + times.system + times.children_user + times.children_system
    return taken


@dataclass(frozen=True)
class CpuByKind:
    """CPU seconds of Spark's JVM, of Spark's Python workers and of all other processes of a service."""

    jvm: float
    workers: float
    service: float

    def since(self, before: CpuByKind) -> CpuByKind:
        """Return what was taken since ``before``."""
        return CpuByKind(self.jvm - before.jvm, self.workers - before.workers, self.service - before.service)

    @property
    def spark(self) -> float:
        """Both of Spark's."""
        return self.jvm + self.workers


def cpu_by_kind(server: Server) -> CpuByKind:
    """Return what the processes of a service have taken so far."""
    family = server.family
    jvms = [process for process in family if "java" in process.name()]
    workers = [process for jvm in jvms for process in jvm.children(recursive=True)]
    known = {process.pid for process in (*jvms, *workers)}
    others = [process for process in family if process.pid not in known]
    return CpuByKind(sum(map(cpu_seconds, jvms)), cpu_of_family(workers), sum(map(cpu_seconds, others)))


@contextmanager
def started(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A process from the moment that it prints the URL it listens at; its errors go to ``log``.

    Raises ``RuntimeError`` with what it said when it ends without.
    """
    # Without its compiled modules Python would compile the whole service at every start.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**inherited, **(environment or {})}
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = re.search(r"http://[^\s/]+", process.stdout.readline())
            if address is None:
                raise RuntimeError(f"{' '.join(command)} does not listen: {log.read_text()}")
            yield Server(address[0], psutil.Process(process.pid))
        finally:
            process.terminate()


def keyfold(data: Path, *options: str) -> list[str]:
    """The command that serves the folder ``data`` on a free port."""
    return with_this_python("app.cli", "serve", "--port", "0", "--data", str(data), *options)


def with_this_python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as a program."""
    return [sys.executable, "-m", module, *arguments]


def status_mib(process: psutil.Process, member: str) -> float:
    """Return what the kernel says of a process's memory, in MiB; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{member}:")), 0.0)
