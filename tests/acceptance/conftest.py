"""Two services for the session: one merges on the session's Spark server, the other not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
