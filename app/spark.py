"""The Spark of a service: started on first use, and watched. No other module of a running service imports
``spark_jobs``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.core.errors import Unavailable
from app.kernel.tasks import Job, Progress, Result
from app.services.shared.background import Repeated
from app.settings import Settings
from app.telemetry.entries import SparkState
from app.telemetry.metrics import Metrics
from app.telemetry.traces import span

if TYPE_CHECKING:
    from spark_jobs.executor import SparkJobs
    from spark_jobs.server import EmbeddedServer

logger = logging.getLogger(__name__)
# Time between two checks of Spark: while it does not answer, and while it does. A check takes 6 to 20 ms of CPU in all.
READY_SECONDS = (0.2, 10.0)
CHECK_SECONDS = 2.0  # a check takes about this time at most
# The log says after this time, and again, that nothing is merged because Spark has not started.
PATIENT_SECONDS = 60.0
_NO_SPARK = (
    "{} is not installed, so nothing is merged here; run pip install 'keyfold[spark]' for an embedded Spark, or "
    "'keyfold[spark-client]' with KEYFOLD_SPARK_REMOTE, or set KEYFOLD_WORKERS=0"
)
SPARK = "spark"  # the embedded server among the processes of the metrics


class SparkExecutor:
    """Runs merges and compactions on Spark (``app.services.shared.executor.MergeExecutor``).

    Spark is loaded, and its embedded server started, at the first use or by ``open``, in any thread: PySpark takes
    as long to load as the rest of the service, and the API must answer before.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._server: EmbeddedServer | None = None
        self._jobs: SparkJobs | None = None

    def open(self) -> SparkJobs:
        """Start Spark if necessary, and return it. Raise ``Unavailable`` if there is no Java."""
        with self._lock:
            try:
                server = self._started()
                if self._jobs is None:
                    from spark_jobs.executor import SparkJobs  # noqa: PLC0415  # see the class

                    self._jobs = SparkJobs(server)
            except ModuleNotFoundError as error:
                raise Unavailable(_NO_SPARK.format(error.name)) from error
            return self._jobs

    def _started(self) -> EmbeddedServer | str:
        """Return the URL of Spark, or the embedded server; its JVM starts while PySpark is loaded."""
        settings = self._settings
        if settings.spark_remote is not None:
            return settings.spark_remote.get_secret_value()
        from spark_jobs.server import EmbeddedServer  # noqa: PLC0415  # needs an installed PySpark

        if self._server is None:
            folder = Path(settings.folder).resolve() / "spark"
            heap_bytes = None if settings.spark_heap_mib is None else settings.spark_heap_mib * 2**20
            self._server = EmbeddedServer(
                folder, master=settings.spark_master, heap_bytes=heap_bytes, umask=settings.umask
            )
        self._server.start()
        return self._server

    def ready(self) -> bool:
        """See ``MergeExecutor.ready``; false before Spark is loaded."""
        return self._jobs is not None and self._jobs.ready()

    def warm_up(self) -> None:
        """See ``MergeExecutor.warm_up``."""
        self.open().warm_up()

    def missing(self) -> tuple[str, ...]:
        """See ``MergeExecutor.missing``."""
        return self.open().missing()

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        """See ``MergeExecutor.run``."""
        with span("job", {"spark.tag": tag, "spark.tasks": len(job.tasks)}):
            return self.open().run(tag, job, report)

    def cancel(self, tag: str) -> None:
        """See ``MergeExecutor.cancel``."""
        if self._jobs is not None:
            self._jobs.cancel(tag)

    @property
    def pid(self) -> int:
        """The process of the embedded server; 0 while there is none."""
        return (self._server.jvm_pid or 0) if self._server is not None else 0

    def close(self) -> None:
        """Stop Spark, if it was started, and its warm-up."""
        with self._lock:
            if self._server is not None:
                self._server.stop()
            if self._jobs is not None:
                self._jobs.close()


class SparkWatch(Repeated):
    """Checks whether Spark answers, and stores the state in the metrics, which all processes of the service read."""

    def __init__(
        self,
        executor: SparkExecutor,
        metrics: Metrics,
        trusted: Callable[[], bool | None] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``trusted``: whether Spark is compatible; None while unknown. ``clock``: seconds."""
        super().__init__("spark-watch", self._look, lambda: READY_SECONDS[self._state is SparkState.READY])
        self._executor = executor
        self._trusted = trusted
        self._metrics = metrics
        self._state = SparkState.STARTING
        self._clock = clock
        self._began = clock()
        self._next_word = self._began + PATIENT_SECONDS
        metrics.say_spark(self._state)

    def _look(self) -> None:
        trusted = self._trusted()
        if trusted is False:
            self._state = SparkState.REFUSED
        elif trusted and self._executor.ready():
            if self._state is not SparkState.READY:
                logger.info("Spark is ready")
            self._state = SparkState.READY
        elif self._state is SparkState.READY:
            logger.warning("Spark does not answer; batches are accepted, and merged when it does")
            self._state = SparkState.LOST
        elif self._state is SparkState.STARTING and self._clock() >= self._next_word:
            waited = "batches are accepted, and merged when it has"
            logger.warning("Spark has not answered its first queries for %d s; %s", self._clock() - self._began, waited)
            self._next_word = self._clock() + PATIENT_SECONDS
        self._metrics.say_spark(self._state)
        self._metrics.adopt(SPARK, self._executor.pid)
