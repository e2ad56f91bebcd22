"""Work that goes table by table: the fault of one table never ends it for the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.core.errors import Cancelled, NotFound, Unavailable
from app.telemetry.entries import Counted, Upkeep
from app.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


@contextmanager
def faults_kept(metrics: Metrics, work: Upkeep, table: str) -> Iterator[None]:
    """Count and log what goes wrong with one table (by name or id) in the body, and go on behind it.

    A table that was dropped meanwhile is no fault. Raise ``Cancelled``, and ``Unavailable`` of a catalog that does not
    answer: no other table would do better.
    """
    try:
        yield
    except (Cancelled, Unavailable):
        raise
    except NotFound:
        return
    except Exception as error:
        metrics.count(Counted.UPKEEP_FAULTS, work)
        logger.warning("%s of table %s failed, and is tried again: %s", work, table, error, exc_info=True)
