"""One service for the session, its merges on the session's Spark server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_jobs.session import SparkConnection
from tests.service import Client, serving


@pytest.fixture(scope="session")
def client(spark: SparkConnection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a real serving process with four merge workers."""
    spark.session()
    data = tmp_path_factory.mktemp("service")
    with serving(data, spark_remote=spark.remote, workers="4") as (_, client):
        yield client
