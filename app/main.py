"""The application: ``create_app(settings)`` is the only wiring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import __version__
from app.api import (
    batches,
    catalog_config,
    changelog,
    compactions,
    databases,
    health,
    merges,
    partitions,
    rows,
    rules,
    simulations,
    snapshots,
    stats,
    tables,
    tags,
)
from app.api.auth import Gate
from app.api.deps import Parts
from app.api.limits import BodyLimit
from app.api.methods import HeadAsGet
from app.api.problems import install_problems
from app.api.query import OnlyDeclaredQuery
from app.api.slashes import accept_trailing_slashes
from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable
from app.services.executor import MergeSite
from app.services.heads import Heads
from app.services.tokens import TokenGate
from app.settings import Settings, is_loopback
from app.storage.images import Images
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
    rows,
    snapshots,
    tags,
    stats,
    changelog,
    rules,
    simulations,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service. Nothing is opened before the lifespan starts."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = _Running(chosen)
        app.state.parts = running.parts
        running.start()
        try:
            yield
        finally:
            running.stop()

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
        dependencies=[OnlyDeclaredQuery],
    )
    install_problems(app)
    accept_trailing_slashes(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, settings=chosen)
    app.add_middleware(Gate, settings=chosen)  # what is added last comes first
    for module in (*ROUTERS, health):
        app.include_router(module.router)
    return app


class _Running:
    """What one process has open between start and stop."""

    def __init__(self, settings: Settings) -> None:
        self.database = CatalogDatabase(settings.catalog_url)
        prepare_catalog(self.database, settings)
        warehouse = Warehouse(settings.warehouse_root)
        images = Images(settings.folder.resolve() / "images", warehouse, settings.image_workers)
        self.images = images
        self.workers: list[Worker] = []
        self.executor: SparkExecutor | None = None
        if settings.workers:
            self.executor = SparkExecutor(settings)
            site = MergeSite(self.database, warehouse, self.executor, settings.lease_seconds)
            self.workers = [Worker(site, settings.poll_seconds, settings.merge_slots) for _ in range(settings.workers)]
        gate = TokenGate(self.database, required=not is_loopback(settings.host))
        heads = Heads(self.database, settings.poll_seconds)
        self.parts = Parts(settings, self.database, warehouse, images, self.executor, gate, heads)

    def start(self) -> None:
        """Begin merging; Spark starts behind the API."""
        for worker in self.workers:
            worker.start()
        self.images.start_sweeping(self._live_runs)

    def _live_runs(self) -> set[tuple[str, str]]:
        with self.database.reading() as repository:
            return repository.snapshots.live_run_ids()

    def stop(self) -> None:
        """End the workers, then what they use."""
        for worker in self.workers:
            worker.stop()
        if self.executor is not None:
            self.executor.close()
        self.images.close()
        self.database.close()


def prepare_catalog(database: CatalogDatabase, settings: Settings) -> None:
    """Migrate the embedded catalog; another one only `keyfold migrate` does, so that a roll-out decides when.

    Raises ``Unavailable`` for a catalog that is not at this version's schema.
    """
    if settings.embedded_catalog:
        database.migrate()
    elif not database.is_current():
        raise Unavailable("the catalog database is not at this version's schema; run: keyfold migrate")
