"""Services for the session: two merge on the session's Spark server, one of which is several processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.collector import Collector, collecting
from tests.acceptance.processes import Several, several
from tests.service import Client, Service, serving

collect_ignore = ["paimon_client"]  # these run where Paimon's client is installed: test_pypaimon.py


@pytest.fixture(scope="session")
def client(spark_remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a real serving process that runs four merges at a time."""
    data = tmp_path_factory.mktemp("service")
    with serving(data, spark_remote=spark_remote, merges_at_once="4") as (_, client):
        yield client


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Client]]:
    """A service without tokens, and its client; nothing merges."""
    with serving(tmp_path_factory.mktemp("open"), workers="0") as service:
        yield service


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """What ``working`` sends its spans to."""
    with collecting() as opened:
        yield opened


@pytest.fixture(scope="session")
def working(spark_remote: str, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """Two processes that answer and one that merges; it logs requests, too, as JSON, and sends spans."""
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_BSP_SCHEDULE_DELAY": "100", "NO_PROXY": "*"}
    settings = {"workers": "1", "spark_remote": spark_remote, "log_format": "json", "log_requests": "true"}
    with several(tmp_path_factory.mktemp("working"), 2, traced, **settings) as service:
        service.client().wait_ready()
        yield service
