"""The wiring of the service: ``create_app(settings)`` returns the API. ``Running`` is the part that serve and worker
share: catalog, files and merge workers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from app.services.operating.scrapes import build_info, scrape_readings
from app.services.rows.images_ahead import ImagesAhead
from app.services.rows.kept_views import Views
from app.services.shared.background import Repeated
from app.services.shared.executor import MergeSite
from app.services.shared.polled import Refreshed
from app.services.shared.rates import Rate, Rates
from app.services.snapshots.heads import Heads
from app.settings import Settings
from app.spark import CHECK_SECONDS, SPARK, SparkExecutor, SparkWatch
from app.storage.images import Images
from app.storage.staging.keys_in_flight import KeysInFlight
from app.telemetry.entries import SPARK_SERVES, SparkState
from app.telemetry.hour import Hour
from app.telemetry.metrics import Metrics
from app.telemetry.traces import start_tracing, stop_tracing
from app.worker import Upkeep, Worker

if TYPE_CHECKING:
    from app.services.access.identities import Identities

# The name of the only process of a service.
SERVICE = "service"
# Time between two checks of readiness.
CONDITION_SECONDS = 2.0
# A scrape reuses the readings of catalog and disk for this long.
SCRAPE_SECONDS = 1.0
# A caller waits this long for a check of readiness or for a scrape.
PATIENCE_SECONDS = 2.0
# Time between two returns of freed memory to the system. One takes 40 ms per freed GiB, else 0.3 ms.
MEMORY_SECONDS = 10.0
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
    """Return the application of the API. Nothing is opened before its lifespan starts.

    ``processes`` are the names of the service's processes if it has several. Each takes its name in
    ``app.state.metrics``, and one of them merges. Without names this process is the only one, and merges.
    """
    settings = settings or Settings()
    app = FastAPI(
        **ABOUT,
        version=__version__,
        lifespan=_lifespan(settings, only_process=processes is None),
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
    if settings.console:
        install_console(app)
    app.state.metrics = Metrics(operations_of(app), (*(processes or (SERVICE,)), SPARK))
    app.state.hour = Hour(app.state.metrics)
    accept_trailing_slashes(app)
    find_routes_by_path(app, ROUTERS)
    _add_middleware(app, settings)
    app.state.operations = Operations(app.routes)
    return app


def _lifespan(settings: Settings, *, only_process: bool) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan, which opens the parts of the service for the application and closes them."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = _Service(settings, app.state.hour, only_process=only_process)
        app.state.parts = service.parts
        service.start()
        try:
            yield
        finally:
            service.stop()

    return lifespan


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """Add the middleware, from the innermost to the outermost: the last one is the first to see a request."""
    app.add_middleware(Revalidated)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Permits)
    app.add_middleware(DirectRows)
    app.add_middleware(Gate, settings=settings)
    app.add_middleware(SignedRequests, settings=settings)
    if settings.console:
        app.add_middleware(ConsoleGate, settings=settings, pages=PAGES)
    if settings.audit_log:
        app.add_middleware(Audited)
    app.add_middleware(Observed, metrics=app.state.metrics, log_requests=settings.log_requests)
    if settings.cors_origins:  # around the parts that bypass the others: ordinary lookups, and unexpected errors
        app.add_middleware(CORSMiddleware, **CROSS_ORIGIN, allow_origins=settings.cors_origins)
    app.add_middleware(Compressed)
    app.add_middleware(Digested)


class Running:
    """The open parts of a process of ``keyfold serve`` or ``keyfold worker``: catalog, files, and ``workers`` merge
    workers with their Spark.
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
        """Return whether all workers found Spark able to merge; None while one of them does not know yet."""
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
            self.spark.close(CHECK_SECONDS)
        for worker in self.workers:
            worker.stop()
        if self.executor is not None:
            self.executor.close()
        self.memory.close()
        self.database.close()
        stop_tracing()


class _Service:
    """The open parts of a process that serves the API. The ``only_process`` of a service merges, too."""

    def __init__(self, settings: Settings, hour: Hour, *, only_process: bool) -> None:
        metrics, folder = hour.metrics, settings.folder.resolve()
        if only_process:
            metrics.take(SERVICE)
        if not settings.workers:
            metrics.say_spark(SparkState.ELSEWHERE)
        self.running = Running(settings, settings.workers if only_process else 0, metrics)
        database, warehouse = self.running.database, self.running.warehouse
        self.images = Images(folder / "images", warehouse, settings.image_bytes, metrics)
        self.audit = AuditLog(settings.audit_log) if settings.audit_log else None
        self.uses = TokenUses(database)
        staged_bytes = settings.staged_index_mib * _MIB
        self.views = Views(database, warehouse, staged_bytes, settings.lookup_consistency, shared=settings.shares_marks)
        self.ahead = ImagesAhead(database, self.views, self.images)
        self.admission = Admission(database, warehouse, settings.folder, staging_bounds(settings))
        self.sampler = Sampler(database, hour) if metrics.is_first else None
        self.parts = self._parts(settings, hour)

    def _parts(self, settings: Settings, hour: Hour) -> Parts:
        """Return the parts that requests use: those above, and some that need no start or stop."""
        database, warehouse, metrics = self.running.database, self.running.warehouse, hour.metrics
        heads = Heads(database, settings.poll_seconds)
        scrape = partial(scrape_readings, database, warehouse, self.images, settings.metrics_tables, settings.tls_cert)
        return Parts(
            settings=settings,
            database=database,
            warehouse=warehouse,
            images=self.images,
            spark_ready=lambda: metrics.spark in SPARK_SERVES,
            gate=TokenGate(
                database, required=settings.asks_for_tokens, uses=self.uses, identities=identities_of(settings)
            ),
            rates=Rates(Rate(settings.failures_per_minute or None), Rate(settings.requests_per_minute)),
            heads=heads,
            commits=GroupCommit(database, warehouse, KeysInFlight(settings.folder.resolve() / "keys_in_flight")),
            views=self.views,
            awaited=AwaitedBatches(database, self.views, heads),
            audit=self.audit,
            admission=self.admission,
            condition=Conditions(database, warehouse, CONDITION_SECONDS, PATIENCE_SECONDS),
            scrapes=Refreshed(scrape, SCRAPE_SECONDS, PATIENCE_SECONDS),
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
            self.sampler.close(0)  # it may wait for the catalog, too
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
