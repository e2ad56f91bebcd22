"""One service that merges in a real Spark, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from keyfold_client import Client, Table
from tests.service import serving

NUMBERS = count(1)
MakeTable = Callable[..., Table]


@pytest.fixture(scope="session")
def url(spark_remote: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("service"), spark_remote=spark_remote) as (service, _):
        yield service.url


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[Client]:
    with Client(url) as opened:
        opened.create_database("shop")
        yield opened


@pytest.fixture
def table(client: Client) -> MakeTable:
    """Makes a table of the columns that a CREATE TABLE lists."""

    def make(columns: str = "id BIGINT PRIMARY KEY NOT ENFORCED, word STRING, n BIGINT", **options: str) -> Table:
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in {"merge.max-staleness": "1 d", **options}.items())
        [made] = client.create_tables("shop", f"CREATE TABLE t{next(NUMBERS)} ({columns}) WITH ({pairs})")
        return made

    return make
