"""The only wiring: ``Running`` is the part that serve and worker both start; ``create_app(settings)`` puts the API
around it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from app import __version__
from app.api.document.docs_page import install_docs
from app.api.document.document import ABOUT, install_document
from app.api.middleware.audit import Audited
from app.api.middleware.auth import Gate
from app.api.middleware.compressed import Compressed
from app.api.middleware.conditions import Revalidated
from app.api.middleware.digested import Digested
from app.api.middleware.limits import BodyLimit
from app.api.middleware.observed import Observed, operations_of
from app.api.middleware.permits import Permits
from app.api.middleware.routing import add_routes, find_routes_by_path
from app.api.middleware.signed import SignedRequests
from app.api.routes.batches import batches, batches_of_tables, forgettings, row_changes, set_aside_events
from app.api.routes.explaining import explain, lateness, simulations
from app.api.routes.merging import compactions, merges
from app.api.routes.operating import damage, health, metrics, signing_in, stats, tokens
from app.api.routes.publishing import files, iceberg, publications
from app.api.routes.rows import rows, scans
from app.api.routes.rows.direct_rows import DirectRows
from app.api.routes.snapshots import changelog, comparisons, snapshots, tags
from app.api.routes.tables import catalog_config, databases, ddl, partitions, rules, table_document, tables
from app.api.shared.deps import Parts
from app.api.shared.methods import HeadAsGet
from app.api.shared.operations import Operations
from app.api.shared.problems import install_problems
from app.api.shared.slashes import accept_trailing_slashes
from app.catalog.database import CatalogDatabase
from app.console.routes import PAGES, install_console
from app.console.site.gate import ConsoleGate
from app.core.errors import Unavailable
from app.files.layout import Warehouse
from app.files.memory import give_memory_back
from app.http.browsers import CROSS_ORIGIN
from app.services.access.token_gate import TokenGate
from app.services.access.token_uses import TokenUses
from app.services.batches.admission import Admission, StagingBounds
from app.services.batches.awaited_batches import AwaitedBatches
from app.services.batches.group_commit import GroupCommit
from app.services.merging.overdue import OverdueWatch
from app.services.operating.audit_log import AuditLog
from app.services.operating.readiness import Conditions, check_not_lost, take_warehouse
from app.services.operating.sampling import Sampler
from app.services.operating.scrapes import build_info, look_around
from app.services.rows.images_ahead import ImagesAhead
from app.services.rows.kept_views import Views
from app.services.shared.background import Repeated
from app.services.shared.executor import MergeSite
from app.services.shared.polled import Refreshed
from app.services.shared.rates import Rate, Rates
from app.services.snapshots.heads import Heads
from app.settings import Settings
from app.spark import READY_SECONDS, SPARK, SparkExecutor, SparkWatch
from app.storage.images import Images
from app.storage.staging.keys_in_flight import KeysInFlight
from app.telemetry.entries import SPARK_SERVES, SparkState
from app.telemetry.hour import Hour
from app.telemetry.metrics import Metrics
from app.telemetry.traces import start_tracing, stop_tracing
from app.worker import Upkeep, Worker

if TYPE_CHECKING:
    from app.services.access.identities import Identities

SERVICE = "service"  # the process that does everything
CONDITION_SECONDS = 2.0  # between two checks of readiness
SCRAPE_SECONDS = 1.0  # after which a scrape reads catalog and disk again
PATIENCE_SECONDS = 2.0  # how long the caller waits for either
MEMORY_SECONDS = 10.0  # before a process returns freed memory; this takes 40 ms for each GiB, 0.3 for none
_MIB = 2**20

ROUTERS = tuple(
    module.router
    for module in (
        catalog_config,
        databases,
        tables,
        ddl,
        table_document,
        batches,
        batches_of_tables,
        set_aside_events,
        merges,
        compactions,
        partitions,
        row_changes,
        explain,  # before rows: a key may end like its paths
        forgettings,
        rows,
        scans,
        snapshots,
        comparisons,
        files,
        publications,
        damage,
        tags,
        stats,
        lateness,
        changelog,
        rules,
        simulations,
        tokens,
        health,
        metrics,
        signing_in,
        iceberg,
    )
)


def create_app(settings: Settings | None = None, processes: Sequence[str] | None = None) -> FastAPI:
    """Return the service. Nothing is opened before the lifespan starts. ``processes`` are the names of its processes
    if it has several: each takes its name in ``app.state.metrics``, and one of them merges. Otherwise this process
    merges.
    """
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = _Service(chosen, app.state.hour, alone=processes is None)
        app.state.parts = service.parts
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        **ABOUT,
        version=__version__,
        lifespan=lifespan,
        # FastAPI makes the spans of requests if OpenTelemetry is set up; metrics and logs are our own.
        telemetry={"metrics": False, "logs": False, "auto_configure": False, "operation_spans": False},
        separate_input_output_schemas=False,
        # A page of our own, without files from a CDN.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_problems(app)
    add_routes(app, ROUTERS)
    install_document(app)
    install_docs(app)
    if chosen.console:
        install_console(app)
    app.state.metrics = Metrics(operations_of(app), (*(processes or (SERVICE,)), SPARK))
    app.state.hour = Hour(app.state.metrics)
    accept_trailing_slashes(app)
    find_routes_by_path(app, ROUTERS)
    app.add_middleware(Revalidated)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, settings=chosen)
    app.add_middleware(Permits)
    app.add_middleware(DirectRows)
    app.add_middleware(Gate, settings=chosen)
    app.add_middleware(SignedRequests, settings=chosen)
    if chosen.console:
        app.add_middleware(ConsoleGate, settings=chosen, pages=PAGES)
    if chosen.audit_log:
        app.add_middleware(Audited)
    # The middleware that is added last runs first.
    app.add_middleware(Observed, metrics=app.state.metrics, log_requests=chosen.log_requests)
    if chosen.cors_origins:  # around the parts that bypass the others: ordinary lookups, and unexpected errors
        app.add_middleware(CORSMiddleware, **CROSS_ORIGIN, allow_origins=chosen.cors_origins)
    app.add_middleware(Compressed)
    app.add_middleware(Digested)
    app.state.operations = Operations(app.routes)
    return app


class Running:
    """The catalog, the files, and ``workers`` merge workers with their Spark, of one process; both ``keyfold serve``
    and ``keyfold worker`` start it.
    """

    def __init__(self, settings: Settings, workers: int, metrics: Metrics) -> None:
        """Open the catalog. Raise ``Unavailable`` if it is not at this version's schema."""
        self.database = CatalogDatabase(settings.catalog_url, folder=settings.folder.resolve(), metrics=metrics)
        prepare_catalog(self.database, settings)
        self.warehouse = Warehouse(settings.warehouse_root, marked=True)
        take_warehouse(self.database, self.warehouse)
        self.executor = SparkExecutor(settings) if workers else None
        self.workers: list[Worker] = []
        self.spark: SparkWatch | None = None
        self.overdue = OverdueWatch(self.database) if workers else None
        self.memory = Repeated("memory", give_memory_back, lambda: MEMORY_SECONDS)
        if self.executor is not None:
            self.spark = SparkWatch(self.executor, metrics, self._trusts_spark)
            site = MergeSite(self.database, self.warehouse, self.executor, settings.lease_seconds)
            tries_spark = settings.spark_trial and settings.spark_remote is not None
            upkeep = Upkeep(settings.keys_known, settings.scrub_bytes_per_second, tries_spark)
            self.workers = [Worker(site, settings.merge_slots, upkeep) for _ in range(workers)]

    def _trusts_spark(self) -> bool | None:
        trusts = [worker.trusts for worker in self.workers]
        return False if False in trusts else (None if None in trusts else True)

    def start(self) -> None:
        """Start merging; Spark starts in the background."""
        start_tracing()
        self.memory.start()
        for worker in self.workers:
            worker.start()
        if self.overdue is not None:
            self.overdue.start()
        if self.spark is not None:
            self.spark.start()

    def stop(self) -> None:
        """Stop the workers, then the parts that they use."""
        if self.overdue is not None:
            self.overdue.close(0)  # it may wait for a catalog that does not answer
        if self.spark is not None:
            self.spark.close(READY_SECONDS[True])
        for worker in self.workers:
            worker.stop()
        if self.executor is not None:
            self.executor.close()
        self.memory.close()
        self.database.close()
        stop_tracing()


class _Service:
    """The open parts of a process that serves the API, from start to stop."""

    def __init__(self, settings: Settings, hour: Hour, *, alone: bool) -> None:
        metrics = hour.metrics
        if alone:
            metrics.take(SERVICE)
        if not settings.workers:
            metrics.say_spark(SparkState.ELSEWHERE)
        self.running = Running(settings, settings.workers if alone else 0, metrics)
        database, warehouse = self.running.database, self.running.warehouse
        self.images = Images(settings.folder.resolve() / "images", warehouse, settings.image_bytes, metrics)
        self.audit = AuditLog(settings.audit_log) if settings.audit_log else None
        self.uses = TokenUses(database)
        gate = TokenGate(
            database, required=settings.asks_for_tokens, uses=self.uses, identities=identities_of(settings)
        )
        rates = Rates(Rate(settings.failures_per_minute or None), Rate(settings.requests_per_minute))
        heads = Heads(database, settings.poll_seconds)
        most_bytes = settings.staged_index_mib * 2**20
        self.views = Views(database, warehouse, most_bytes, settings.lookup_consistency, shared=settings.shares_marks)
        self.ahead = ImagesAhead(database, self.views, self.images)
        awaited = AwaitedBatches(database, self.views, heads)
        commits = GroupCommit(database, warehouse, KeysInFlight(settings.folder.resolve() / "keys_in_flight"))
        self.admission = Admission(database, warehouse, settings.folder, staging_bounds(settings))
        self.sampler = Sampler(database, hour) if metrics.is_first else None
        look = partial(look_around, database, warehouse, self.images, settings.metrics_tables, settings.tls_cert)
        condition = Conditions(database, warehouse, CONDITION_SECONDS, PATIENCE_SECONDS)
        self.parts = Parts(
            settings=settings,
            database=database,
            warehouse=warehouse,
            images=self.images,
            spark_ready=lambda: metrics.spark in SPARK_SERVES,
            gate=gate,
            rates=rates,
            heads=heads,
            commits=commits,
            views=self.views,
            awaited=awaited,
            audit=self.audit,
            admission=self.admission,
            condition=condition,
            scrapes=Refreshed(look, SCRAPE_SECONDS, PATIENCE_SECONDS),
            build=build_info(database),
            hour=hour,
        )

    def start(self) -> None:
        """Start merging, and delete images that no snapshot names."""
        self.running.start()
        self.uses.start()
        self.views.start()
        self.images.start_sweeping(self._live_runs)
        self.ahead.start()
        self.admission.start()
        if self.sampler is not None:
            self.sampler.start()

    def _live_runs(self) -> set[tuple[str, str]]:
        with self.running.database.reading() as repository:
            return repository.snapshots.live_run_ids()

    def stop(self) -> None:
        """Stop all parts, the catalog last."""
        self.admission.close(0)  # it may wait for a catalog that does not answer
        if self.sampler is not None:
            self.sampler.close(0)  # so may it
        self.ahead.close()
        self.views.close()
        self.images.close()
        self.uses.close()
        if self.audit is not None:
            self.audit.close()
        self.running.stop()


def identities_of(settings: Settings) -> Identities | None:
    """Return the identity provider whose tokens are accepted; None if none is configured."""
    if settings.oidc_issuer is None or settings.oidc_audience is None:
        return None
    from app.services.access.identities import Identities  # noqa: PLC0415  # it takes long to load

    secret = settings.oidc_client_secret
    return Identities(
        settings.oidc_issuer,
        settings.oidc_audience,
        [grant.rule for grant in settings.oidc_grants],
        None if secret is None else secret.get_secret_value(),
    )


def staging_bounds(settings: Settings) -> StagingBounds:
    """Return the bounds of staging from the settings."""
    return StagingBounds(
        settings.staged_table_mib * _MIB,
        settings.staged_table_records,
        timedelta(seconds=settings.staged_late_seconds),
        settings.staged_mib * _MIB,
        settings.staged_records,
        settings.least_free_mib * _MIB,
    )


def prepare_catalog(database: CatalogDatabase, settings: Settings) -> None:
    """Migrate the embedded catalog. Others are migrated only by `keyfold migrate`, at a time that the roll-out
    decides.

    Raise ``Unavailable`` for a catalog that is not at this version's schema, or that is missing although the warehouse
    holds tables.
    """
    check_not_lost(database, Warehouse(settings.warehouse_root))
    if settings.embedded_catalog:
        database.migrate()
    elif not database.is_current():
        raise Unavailable("the catalog database is not at this version's schema; run: keyfold migrate")
