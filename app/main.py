"""The only wiring: ``Running`` is what serve and worker both start, ``create_app(settings)`` the API around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import __version__
from app.api import (
    batches,
    catalog_config,
    changelog,
    compactions,
    databases,
    files,
    health,
    merges,
    partitions,
    row_changes,
    rows,
    rules,
    scans,
    simulations,
    snapshots,
    stats,
    tables,
    tags,
    tokens,
)
from app.api.auth import Gate
from app.api.deps import Parts
from app.api.direct_rows import DirectRows
from app.api.limits import BodyLimit
from app.api.methods import HeadAsGet
from app.api.operations import Operations
from app.api.permits import OnlyPermitted, Permits
from app.api.problems import install_problems
from app.api.query import OnlyDeclaredQuery
from app.api.refusals import CutOff
from app.api.slashes import accept_trailing_slashes
from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable
from app.services.awaited_batches import AwaitedBatches
from app.services.executor import MergeSite
from app.services.group_commit import GroupCommit
from app.services.heads import Heads
from app.services.images_ahead import ImagesAhead
from app.services.token_gate import TokenGate
from app.services.token_uses import TokenUses
from app.services.views import Views
from app.settings import Settings, is_loopback
from app.storage.images import Images
from app.storage.keys_in_flight import KeysInFlight
from app.storage.layout import Warehouse
from app.worker import SparkExecutor, Worker

ROUTERS = (
    catalog_config,
    databases,
    tables,
    batches,
    merges,
    compactions,
    partitions,
    row_changes,
    rows,
    scans,
    snapshots,
    files,
    tags,
    stats,
    changelog,
    rules,
    simulations,
    tokens,
)


def create_app(settings: Settings | None = None, spark_ready: Callable[[], bool] | None = None) -> FastAPI:
    """The service. Nothing is opened before the lifespan starts. ``spark_ready`` tells of Spark where another process
    of the service merges.
    """
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = _Service(chosen, spark_ready)
        app.state.parts = service.parts
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="Keyfold",
        version=__version__,
        lifespan=lifespan,
        # Paimon's clients send JSON without a Content-Type.
        strict_content_type=False,
        separate_input_output_schemas=False,
        # More pages than the open ones would need the gate to know them.
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        dependencies=[OnlyPermitted, OnlyDeclaredQuery],
    )
    install_problems(app)
    accept_trailing_slashes(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, settings=chosen)
    app.add_middleware(Permits)
    app.add_middleware(DirectRows)
    app.add_middleware(Gate, settings=chosen)
    app.add_middleware(CutOff)  # what is added last comes first
    for module in (*ROUTERS, health):
        app.include_router(module.router)
    app.state.operations = Operations(app.routes)
    return app


class Running:
    """The catalog, the files, and ``workers`` merge workers with their Spark, of one process: what ``keyfold serve``
    and ``keyfold worker`` both start.
    """

    def __init__(self, settings: Settings, workers: int) -> None:
        """Opens the catalog. Raises ``Unavailable`` when it is not at this version's schema."""
        self.database = CatalogDatabase(settings.catalog_url, folder=settings.folder.resolve())
        prepare_catalog(self.database, settings)
        self.warehouse = Warehouse(settings.warehouse_root)
        self.executor = SparkExecutor(settings) if workers else None
        self.workers: list[Worker] = []
        if self.executor is not None:
            site = MergeSite(self.database, self.warehouse, self.executor, settings.lease_seconds)
            pause, slots, known = settings.poll_seconds, settings.merge_slots, settings.keys_known
            self.workers = [Worker(site, pause, slots, known) for _ in range(workers)]

    def start(self) -> None:
        """Begin merging; Spark starts behind it."""
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """End the workers, then what they use."""
        for worker in self.workers:
            worker.stop()
        if self.executor is not None:
            self.executor.close()
        self.database.close()


class _Service:
    """What a process that serves the API has open between start and stop."""

    def __init__(self, settings: Settings, spark_ready: Callable[[], bool] | None) -> None:
        self.running = Running(settings, settings.workers if spark_ready is None else 0)
        database, warehouse = self.running.database, self.running.warehouse
        self.images = Images(settings.folder.resolve() / "images", warehouse, settings.image_bytes)
        self.uses = TokenUses(database)
        gate = TokenGate(database, required=not is_loopback(settings.host), uses=self.uses)
        heads = Heads(database, settings.poll_seconds)
        most_bytes = settings.staged_index_mib * 2**20
        self.views = Views(database, warehouse, most_bytes, settings.lookup_consistency, shared=settings.shares_marks)
        self.ahead = ImagesAhead(database, self.views, self.images)
        awaited = AwaitedBatches(database, self.views, heads)
        executor = self.running.executor
        ready = spark_ready or (executor.ready if executor is not None else lambda: True)
        commits = GroupCommit(database, warehouse, KeysInFlight(settings.folder.resolve() / "keys_in_flight"))
        self.parts = Parts(settings, database, warehouse, self.images, ready, gate, heads, commits, self.views, awaited)

    def start(self) -> None:
        """Begin merging, and forget images that no snapshot names."""
        self.running.start()
        self.uses.start()
        self.views.start()
        self.images.start_sweeping(self._live_runs)
        self.ahead.start()

    def _live_runs(self) -> set[tuple[str, str]]:
        with self.running.database.reading() as repository:
            return repository.snapshots.live_run_ids()

    def stop(self) -> None:
        """End what ``start`` began, the catalog last."""
        self.ahead.close()
        self.views.close()
        self.images.close()
        self.uses.close()
        self.running.stop()


def prepare_catalog(database: CatalogDatabase, settings: Settings) -> None:
    """Migrate the embedded catalog; another one only `keyfold migrate` does, so that a roll-out decides when.

    Raises ``Unavailable`` for a catalog that is not at this version's schema.
    """
    if settings.embedded_catalog:
        database.migrate()
    elif not database.is_current():
        raise Unavailable("the catalog database is not at this version's schema; run: keyfold migrate")
