"""One service for all files: without Spark where nothing is merged. Each test makes tables of other names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import DATABASE, Terminal
from tests.service import Service, serving


def opened(service: Service, folder: Path) -> Terminal:
    terminal = Terminal(folder, service.url)
    assert terminal.run("database", "create", DATABASE).returncode == 0
    return terminal


@pytest.fixture(scope="session")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal beside a service that merges nothing."""
    with serving(tmp_path_factory.mktemp("service"), workers="0") as (service, _):
        yield opened(service, tmp_path_factory.mktemp("terminal"))


@pytest.fixture(scope="session")
def merging(spark_remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal beside a service that merges."""
    with serving(tmp_path_factory.mktemp("service"), spark_remote=spark_remote) as (service, _):
        yield opened(service, tmp_path_factory.mktemp("terminal"))
