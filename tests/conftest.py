"""Fixtures for all tests: one embedded Spark server for the session, hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from spark_jobs.server import EmbeddedServer
from spark_jobs.session import SparkConnection

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A real Spark Connect server, shared by the session."""
    server = EmbeddedServer(tmp_path_factory.mktemp("spark"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark(spark_server: EmbeddedServer) -> Iterator[SparkConnection]:
    """A connection to the session's Spark server."""
    connection = SparkConnection(spark_server)
    yield connection
    connection.close()
