"""What every Spark session of Keyfold is set to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SESSION_CONFIGS: Final[Mapping[str, str]] = {
    # Each row of a job's relation is a parcel of tasks. It becomes one partition, which Spark schedules.
    "spark.sql.leafNodeDefaultParallelism": "10000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    # A message that reaches a client of the service must not carry a page of Java.
    "spark.sql.connect.serverStacktrace.enabled": "false",
}
"""What every session is set to, whichever server it is on."""
