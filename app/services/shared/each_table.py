"""Work table by table: a failure of one table never stops the others."""

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
    """Count and log an exception of the body, which is about one table (by name or id), and continue after it.

    A table that was dropped meanwhile is no fault. Raise ``Cancelled``, and ``Unavailable`` if the catalog does not
    answer: other tables would fail, too.
    """
    try:
        yield
    except (Cancelled, Unavailable):
        raise
    except NotFound:
        return
    except Exception as error:
        metrics.count(Counted.UPKEEP_FAULTS, work)
        logger.warning("%s of table %s failed, and is retried: %s", work, table, error, exc_info=True)
