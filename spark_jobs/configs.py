"""The Spark settings of every session of Keyfold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SESSION_CONFIGS: Final[Mapping[str, str]] = {
    # Each row of a job's relation is a parcel of tasks. It becomes one partition, which Spark schedules.
    "spark.sql.leafNodeDefaultParallelism": "10000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    # Error messages for clients of the service must not contain a Java stack trace.
    "spark.sql.connect.serverStacktrace.enabled": "false",
}
"""What every session is set to, whichever server it is on."""
