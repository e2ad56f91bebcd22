"""Fixtures for all tests: one embedded Spark server for the session, hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from spark_jobs.session import SparkConnection
from tests.spark_server import embedded_spark

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnection]:
    """A real Spark Connect server, shared by the session."""
    with embedded_spark(tmp_path_factory.mktemp("spark")) as connection:
        yield connection
