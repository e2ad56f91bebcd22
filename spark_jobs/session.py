"""The connection to Spark: one session, created when needed and replaced when lost, whose jobs can be watched."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.logger import PySparkLogger
from pyspark.sql.connect import proto
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

from app.core.errors import Cancelled, NotSpark, Unavailable
from app.kernel.tasks import Progress
from spark_jobs.artifacts import send_code
from spark_jobs.configs import SESSION_CONFIGS
from spark_jobs.server import EmbeddedServer

logger = logging.getLogger(__name__)

_USER = "keyfold"
# gRPC's own limit is two minutes, for which a server that is back would seem away.
_CHANNEL_OPTIONS = (("grpc.max_reconnect_backoff_ms", 2_000),)
_LOST_CONDITIONS = (
    "INVALID_HANDLE.SESSION",
    "INVALID_HANDLE.OPERATION",
    "NO_ACTIVE_SESSION",
    "RESPONSE_ALREADY_RECEIVED",  # a restarted server does not know the queries of its predecessor
)
_SILENT_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# CANCELLED: the session of the job was replaced meanwhile, and its channel closed.
_LOST_CODES = (*_SILENT_CODES, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.CANCELLED)


class JobCancelled(Cancelled):  # by request, not an error
    """Raised out of ``SparkConnection.job`` when ``cancel`` was called for its tag."""


class SparkConnection:
    """One Spark Connect session, shared by any number of threads.

    ``server`` is an ``EmbeddedServer``, which is started if it does not run, or the URL of a Spark Connect server
    (``sc://host:port/;token=…``). ``configs`` are added to those of ``spark_jobs.configs``. ``start_timeout_seconds``
    bounds the wait for an embedded server that starts and for the first answer of a remote one.

    Nothing is started or connected before the first use. A session that is lost (its server died or was restarted, or
    it expired) is replaced at the next use; its running jobs fail with ``Unavailable``.
    """

    def __init__(
        self,
        server: EmbeddedServer | str,
        *,
        configs: Mapping[str, str] | None = None,
        start_timeout_seconds: float = 120,
    ) -> None:
        _use_connect_only()
        self._server = server
        self._configs = {**SESSION_CONFIGS, **(configs or {})}
        self._start_timeout_seconds = start_timeout_seconds
        self._lock = threading.RLock()
        self._live: _LiveSession | None = None
        self._jobs: dict[str, _Job] = {}

    def __repr__(self) -> str:
        where = repr(self._server) if isinstance(self._server, EmbeddedServer) else self._channel_builder().endpoint
        return f"<SparkConnection to {where}>"

    def session(self) -> SparkSession:
        """Return a session that is alive; create it, and start its embedded server, if there is none.

        Raise ``Unavailable`` if Spark does not answer.
        """
        with self._lock:
            if self._live is None or not self._is_intact(self._live):
                self.close()
                self._live = self._connect()
            return self._live.spark

    def ready(self, timeout_seconds: float = 2.0) -> bool:
        """Return whether Spark answers now; starts nothing, and takes at most about ``timeout_seconds``."""
        live = self._live
        if live is not None and self._is_current(live):
            return live.answers(timeout_seconds)
        with suppress(Unavailable, grpc.FutureTimeoutError), self._channel_builder().toChannel() as channel:
            grpc.channel_ready_future(channel).result(timeout_seconds)
            return True
        return False

    @contextmanager
    def job(self, tag: str, on_progress: Progress | None = None, title: str = "") -> Iterator[SparkSession]:
        """Run what the body runs on the yielded session, in this thread, as one job that ``cancel(tag)`` can end.

        ``tag`` must not be in use by another running job and holds no comma. Spark's pages show ``title`` as another
        tag of the job. ``on_progress`` is called in this thread,
        about twice a second while a query runs and once with 1.0 when the body is done; an error of it is logged.

        Raise ``JobCancelled`` if the job was cancelled, even if its body came to its end; ``Unavailable`` if Spark
        does not answer or is lost on the way; any other error of the body unchanged.
        """
        job = _Job(tag, self.session(), on_progress, title.replace(",", " "))
        with self._enter(job):
            try:
                yield job.spark
            except Exception as error:
                if job.cancelled:
                    raise JobCancelled(tag) from error
                if _is_lost(error):
                    raise Unavailable("Spark was lost while it worked. Retry.") from error
                raise
        if job.cancelled:
            raise JobCancelled(tag)
        job.report(running=0, fraction=1.0)

    def cancel(self, tag: str) -> bool:
        """Cancel the running job ``tag``, from any thread. Return whether there is such a job, without waiting for its
        end.
        """
        job = self._jobs.get(tag)
        if job is None:
            return False
        job.cancel()
        return True

    def close(self) -> None:
        """Close the session; an embedded server continues. The next use creates a new session."""
        with self._lock:
            live, self._live = self._live, None
            if live is not None:
                live.close()

    def _is_intact(self, live: _LiveSession) -> bool:
        try:
            return self._is_current(live) and live.is_intact()
        except Unavailable:
            if self._is_current(live):
                # Other threads may use a session that is only slow to answer: it is kept.
                raise
            return False

    def _is_current(self, live: _LiveSession) -> bool:
        if not isinstance(self._server, EmbeddedServer):
            return True
        return self._server.ready and live.endpoint == f"127.0.0.1:{self._server.port}"

    def _connect(self) -> _LiveSession:
        if isinstance(self._server, EmbeddedServer):
            self._server.start()
            self._server.wait_ready(self._start_timeout_seconds)
        embedded = isinstance(self._server, EmbeddedServer)
        channel, retries = self._channel_builder(), self._retries()
        return _LiveSession(channel, retries, self._configs, self._start_timeout_seconds, embedded)

    def _channel_builder(self) -> DefaultChannelBuilder:
        if isinstance(self._server, EmbeddedServer):
            return _LoopbackChannel(self._server.remote, [*_CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)])
        return DefaultChannelBuilder(self._server, [*_CHANNEL_OPTIONS])

    def _retries(self) -> DefaultPolicy:
        if isinstance(self._server, EmbeddedServer):
            return _WhileAlive(self._server)
        # PySpark would retry for ten minutes, longer than a merge's lease; these are about one.
        return DefaultPolicy(max_retries=15, max_backoff=5_000)

    @contextmanager
    def _enter(self, job: _Job) -> Iterator[None]:
        with self._lock:
            if job.tag in self._jobs:
                raise ValueError(f"a job with the tag {job.tag!r} is running")
            for tag in job.tags:
                job.spark.addTag(tag)
            self._jobs[job.tag] = job
        job.spark.registerProgressHandler(job)
        try:
            yield
        finally:
            job.spark.removeProgressHandler(job)
            for tag in job.tags:
                job.spark.removeTag(tag)
            del self._jobs[job.tag]


class _LiveSession:
    """A session, with a check within a time limit whether the server still has it."""

    def __init__(
        self,
        builder: DefaultChannelBuilder,
        retries: DefaultPolicy,
        configs: Mapping[str, str],
        timeout_seconds: float,
        embedded: bool,
    ) -> None:
        self.endpoint = builder.endpoint
        self.spark = SparkSession(builder, userId=_USER)
        self.spark.client.set_retry_policies([retries])
        self._builder = builder
        self._embedded = embedded
        self._channel = builder.toChannel()
        self._stub = proto.SparkConnectServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated code
        try:
            self._server_side_id = self._ask(timeout_seconds)
        except grpc.RpcError as error:
            self.close()
            raise self._unanswered(error) from error
        # Not by ``conf.set``: it warns of settings that Spark will drop, with any value.
        pairs = [proto.KeyValue(key=key, value=value) for key, value in configs.items()]
        self.spark.client.config(proto.ConfigRequest.Operation(set=proto.ConfigRequest.Set(pairs=pairs)))
        if not embedded:
            send_code(self.spark)

    def is_intact(self) -> bool:
        """Return whether the server still has the session that was set up here, not a new one under the same id.

        Raise ``Unavailable`` if it does not answer.
        """
        try:
            return not self.spark.is_stopped and self._ask(5.0) == self._server_side_id
        except grpc.RpcError as error:
            if _code(error) in _SILENT_CODES:
                raise self._unanswered(error) from error
            return False

    def answers(self, timeout_seconds: float) -> bool:
        """Return whether the server answers at all, even if only that the session has expired."""
        try:
            self._ask(timeout_seconds)
        except grpc.RpcError as error:
            return _code(error) not in _LOST_CODES
        return True

    def close(self) -> None:
        """Release the session if the server answers within two seconds, and close the channels."""
        request = proto.ReleaseSessionRequest(session_id=self.spark.session_id)
        request.user_context.user_id = self._builder.userId or _USER
        with suppress(grpc.RpcError):
            self._stub.ReleaseSession(request, timeout=2.0, metadata=list(self._builder.metadata()))
        self._channel.close()
        self.spark.client.close()

    def _unanswered(self, error: grpc.RpcError) -> Unavailable:
        if _code(error) not in _LOST_CODES and isinstance(error, grpc.Call):
            return NotSpark(f"the server at {self.endpoint} answers otherwise than Spark does: {error.details()}")
        what_to_do = "Check that it runs, and that the address and token in KEYFOLD_SPARK_REMOTE are right."
        return Unavailable(f"Spark at {self.endpoint} does not answer ({_code(error).name}). {what_to_do}")

    def _ask(self, timeout_seconds: float) -> str:
        request = proto.ConfigRequest(session_id=self.spark.session_id, client_type=_USER)
        request.user_context.user_id = self._builder.userId or _USER
        request.operation.get_option.keys.append("spark.sql.session.timeZone")
        metadata = list(self._builder.metadata())
        # One elsewhere may be back in a moment; the embedded one listens by now, or has ended.
        waits = not self._embedded
        answer = self._stub.Config(request, timeout=timeout_seconds, wait_for_ready=waits, metadata=metadata)
        return str(answer.server_side_session_id)


class _Job(ProgressHandler):
    """A running job: its progress, and whether it was cancelled."""

    def __init__(self, tag: str, spark: SparkSession, on_progress: Progress | None, title: str) -> None:
        self.tag = tag
        self.tags = (tag, title) if title else (tag,)
        self.spark = spark
        self.cancelled = False
        self._on_progress = on_progress
        self._thread = threading.get_ident()
        self._stages: dict[tuple[str, int], StageInfo] = {}

    def cancel(self) -> None:
        self.cancelled = True
        self._interrupt()

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        # A session's handlers are called for the queries of all threads, each in the thread that waits for the query.
        if threading.get_ident() != self._thread:
            return
        if self.cancelled and not done:
            # The cancel came between two queries of the job, when there was nothing to interrupt.
            self._interrupt()
        for stage in stages or ():
            self._stages[operation_id or "", stage.stage_id] = stage
        if not done:
            self.report(running=inflight_tasks)

    def _interrupt(self) -> None:
        # If the server has died, the job fails by itself, which ends it, too.
        with suppress(PySparkException, grpc.RpcError):
            self.spark.interruptTag(self.tag)

    def report(self, *, running: int, fraction: float | None = None) -> None:
        if self._on_progress is None:
            return
        stages = self._planned_stages()
        counts = {
            "tasks": sum(stage.num_tasks for stage in stages),
            "tasksDone": sum(stage.num_completed_tasks for stage in stages),
            "tasksRunning": running,
            "stages": len(stages),
            "stagesDone": sum(1 for stage in stages if stage.done),
        }
        try:
            self._on_progress(counts["tasksDone"] / max(1, counts["tasks"]) if fraction is None else fraction, counts)
        except Exception:
            logger.exception("the progress of job %s could not be reported", self.tag)

    def _planned_stages(self) -> list[StageInfo]:
        """Return the stages that ran or will; adaptive execution lists a finished stage again, under a new id, as
        skipped.
        """
        newest = max((stage.stage_id for stage in self._stages.values() if stage.num_completed_tasks), default=-1)
        return [stage for stage in self._stages.values() if stage.num_completed_tasks or stage.stage_id > newest]


class _LoopbackChannel(DefaultChannelBuilder):
    """Connects to 127.0.0.1 if the URL says ``localhost``, as PySpark requires for a token without TLS.

    ``localhost`` may resolve to ``::1`` first, where another user of the machine could be listening for the token.
    """

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"


class _WhileAlive(DefaultPolicy):
    """Retries only while the embedded server runs."""

    def __init__(self, server: EmbeddedServer) -> None:
        super().__init__(max_retries=8, max_backoff=2_000)
        self._server = server

    def can_retry(self, e: BaseException) -> bool:
        return self._server.alive and super().can_retry(e)


def _use_connect_only() -> None:
    # The functions of pyspark.sql.functions build Connect expressions only where this is set.
    os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
    # PySpark prints failed queries as JSON on standard error besides raising them.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _is_lost(error: Exception) -> bool:
    if isinstance(error, SparkConnectGrpcException) and error.getGrpcStatusCode() in _LOST_CODES:
        return True
    call = error if isinstance(error, grpc.RpcError) else error.__context__  # PySpark may fail to read its status
    if isinstance(call, grpc.RpcError) and _code(call) in _LOST_CODES:
        return True
    return isinstance(error, PySparkException) and (error.getCondition() or "").startswith(_LOST_CONDITIONS)


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    return error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
