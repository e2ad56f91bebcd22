"""One real embedded Spark server for any test that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection


@contextmanager
def embedded_spark(folder: Path) -> Iterator[SparkConnection]:
    """A connection to a Spark server of its own that works in ``folder``; both end with the block."""
    server = EmbeddedServer(folder)
    connection = SparkConnection(server)
    server.start()
    try:
        yield connection
    finally:
        connection.close()
        server.stop()
