"""Merges without Spark: the kernel in this process, as tests need it."""
# ruff: noqa: ARG002  # a double takes whatever the protocol passes

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from app.core.errors import Cancelled
from app.kernel.run import LocalExecutor
from app.kernel.tasks import Job, Progress, Result, Work


class PythonExecutor(LocalExecutor):
    """Runs tasks in this process; counts the jobs that merge and that compact, and keeps the last one."""

    def __init__(self) -> None:
        self.merges = 0
        self.compactions = 0
        self.last: Job | None = None

    def ready(self) -> bool:
        return True

    def warm_up(self) -> None:
        return

    def missing(self) -> tuple[str, ...]:
        return ()

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self.last = job
        kinds = {task.work for task in job.tasks}
        if Work.MERGE in kinds:
            return self.merge(tag, job, report)
        if Work.COMPACT in kinds:
            return self.compact(tag, job, report)
        return self.write_changes(tag, job, report) if Work.CHANGES in kinds else super().run(tag, job, report)

    def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self.merges += 1
        return LocalExecutor.run(self, tag, job, report)

    def compact(self, tag: str, job: Job, report: Progress) -> list[Result]:
        self.compactions += 1
        return LocalExecutor.run(self, tag, job, report)

    def write_changes(self, tag: str, job: Job, report: Progress) -> list[Result]:
        return LocalExecutor.run(self, tag, job, report)

    def cancel(self, tag: str) -> None:
        return


class BrokenExecutor(PythonExecutor):
    """Fails every merge, and every compaction, with ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def merge(self, *args: Any) -> list[Result]:
        self.merges += 1
        raise self.error

    def compact(self, *args: Any) -> list[Result]:
        self.compactions += 1
        raise self.error


class BrokenCompaction(PythonExecutor):
    """Merges, but cannot compact."""

    def compact(self, *args: Any) -> list[Result]:
        raise RuntimeError("no room")


class InterruptedExecutor(PythonExecutor):
    """Calls ``meanwhile`` once, after the files of the first merge (or compaction) are written."""

    def __init__(self, meanwhile: Callable[[], object], *, in_compaction: bool = False) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = meanwhile
        self.in_compaction = in_compaction

    def _interrupt(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def merge(self, *args: Any) -> list[Result]:
        results = super().merge(*args)
        if not self.in_compaction:
            self._interrupt()
        return results

    def compact(self, *args: Any) -> list[Result]:
        results = super().compact(*args)
        if self.in_compaction:
            self._interrupt()
        return results


class PatientExecutor(PythonExecutor):
    """Works until it is cancelled; ``started`` tells that it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.cancelled: set[str] = set()
        self._stop = threading.Event()

    def merge(self, tag: str, *args: Any) -> list[Result]:
        self.merges += 1
        self.started.set()
        if not self._stop.wait(60):
            raise AssertionError("nobody cancelled the job")
        assert tag in self.cancelled
        raise Cancelled(tag)

    def cancel(self, tag: str) -> None:
        self.cancelled.add(tag)
        self._stop.set()


class GatedExecutor(PythonExecutor):
    """Holds the merges of the tables ``held`` (by id) until ``gate`` is set or somebody cancels them; fails those of
    ``failing``.
    """

    def __init__(self, held: Iterable[str] = (), failing: Iterable[str] = ()) -> None:
        super().__init__()
        self.held, self.failing = set(held), set(failing)
        self.gate = threading.Event()
        self.begun: list[str] = []  # table ids, in order
        self.running: list[str] = []
        self.most = 0
        self._cancelled: set[str] = set()
        self._lock = threading.Lock()

    def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
        table = job.tasks[0].table_id
        with self._lock:
            self.begun.append(table)
            self.running.append(table)
            self.most = max(self.most, len(self.running))
        try:
            while table in self.held and not self.gate.wait(0.01):
                if tag in self._cancelled:
                    raise Cancelled(tag)
            if table in self.failing:
                raise RuntimeError("no luck")
            return super().merge(tag, job, report)
        finally:
            with self._lock:
                self.running.remove(table)

    def cancel(self, tag: str) -> None:
        self._cancelled.add(tag)


class Killed(BaseException):
    """Ends a worker on the spot, as kill -9 would: no ``except Exception`` of the service sees it."""


def die() -> None:
    raise Killed
