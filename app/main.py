"""The application: ``create_app(settings)`` is the only wiring."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import __version__
from app.api import batches, catalog_config, databases, health, merges, rows, rules, simulations, tables
from app.api.auth import Guarded
from app.api.deps import Parts
from app.api.problems import install_problems
from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable
from app.services.merges import MergeSite
from app.services.tokens import TokenGate
from app.settings import Settings, is_loopback
from app.storage.images import Images
from app.storage.layout import Warehouse
from app.worker import SparkExecutor, Worker, open_spark

logger = logging.getLogger(__name__)
ROUTERS = (catalog_config, databases, tables, batches, merges, rows, rules, simulations)


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
    )
    install_problems(app)
    for module in ROUTERS:
        app.include_router(module.router, dependencies=[Guarded])
    app.include_router(health.router)
    return app


class _Running:
    """What one process has open between start and stop."""

    def __init__(self, settings: Settings) -> None:
        self.database = CatalogDatabase(settings.catalog_url)
        _check_catalog(self.database, settings)
        warehouse = Warehouse(settings.warehouse_root)
        images = Images(settings.folder.resolve() / "images", warehouse, settings.image_workers)
        self.images = images
        self.server = None
        self.workers: list[Worker] = []
        executor = None
        if settings.workers:
            self.server, self.connection = open_spark(settings)
            executor = SparkExecutor(self.connection)
            site = MergeSite(self.database, warehouse, executor, settings.lease_seconds)
            self.workers = [Worker(site, settings.poll_seconds) for _ in range(settings.workers)]
        gate = TokenGate(self.database, required=not is_loopback(settings.host))
        self.parts = Parts(settings, self.database, warehouse, images, executor, gate)

    def start(self) -> None:
        """Begin merging; Spark starts behind the API."""
        if self.server is not None:
            try:
                self.server.start()
            except Unavailable as error:
                logger.warning("merges wait: %s", error)
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """End the workers, then what they use."""
        for worker in self.workers:
            worker.stop()
        if self.workers:
            self.connection.close()
        if self.server is not None:
            self.server.stop()
        self.images.close()
        self.database.close()


def _check_catalog(database: CatalogDatabase, settings: Settings) -> None:
    """The embedded catalog is migrated here; another one only by `keyfold migrate`, so that a roll-out decides when."""
    if settings.embedded_catalog:
        database.migrate()
    elif not database.is_current():
        raise Unavailable("the catalog database is not at this version's schema; run: keyfold migrate")
