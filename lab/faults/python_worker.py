"""``python -m lab.faults.python_worker``: a worker like ``keyfold worker``, for which Python folds, not Spark.

A merge takes milliseconds, so that many more faults strike in an hour, and more of them in the middle of a commit.
"""

from __future__ import annotations

import logging
import signal
import threading

from app.catalog.database import CatalogDatabase
from app.core.errors import KeyfoldError
from app.files.layout import Warehouse
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import sweep
from app.settings import Settings
from app.telemetry.logs import log_to_stderr
from app.worker import Upkeep, Worker
from tests.services.executor import PythonExecutor

SWEEP_SECONDS = 2.0
logger = logging.getLogger(__name__)


def _sweep(site: MergeSite) -> None:
    """As the worker does it every five minutes."""
    try:
        sweep(site.database, site.warehouse)
    except (KeyfoldError, OSError):
        logger.warning("could not sweep", exc_info=True)


def main() -> None:
    """Merge until SIGTERM."""
    settings = Settings()
    log_to_stderr(settings.log_level, settings.log_format)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    database = CatalogDatabase(settings.catalog_url, folder=settings.folder.resolve())
    warehouse = Warehouse(settings.warehouse_root, marked=True)
    site = MergeSite(database, warehouse, PythonExecutor(), settings.lease_seconds)
    upkeep = Upkeep(settings.keys_known, settings.scrub_bytes_per_second)
    worker = Worker(site, settings.merge_slots, upkeep)
    worker.start()
    while not ended.wait(SWEEP_SECONDS):
        _sweep(site)
    worker.stop()
    database.close()


if __name__ == "__main__":
    main()
