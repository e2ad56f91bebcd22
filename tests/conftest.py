"""Fixtures for all tests: one Spark and one PostgreSQL server for the whole run, hypothesis profiles, marks."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from app.catalog.database import CatalogDatabase
from app.files.layout import Warehouse
from tests.compiled_sql import share_compiled_statements
from tests.object_store import CREDENTIALS, FaultyLine, s3_server
from tests.postgres import TEMPLATE, postgres_database, postgres_server
from tests.sharing import run_folder, shared
from tests.slow import MOST_SECONDS, slow_functions

if TYPE_CHECKING:
    from spark_jobs.session import SparkConnection

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=1000)
# ``make quick``: whoever works here asks often; the whole run looks longer at the same properties.
settings.register_profile("quick", settings.get_profile("default"), max_examples=12)
share_compiled_statements()
# JVMs of tests end before Java's second compiler gives back what it takes; the first one alone has room for 48 MB of
# code, which a few dozen tables fill: then Java interprets until its end (docs/make.md). From 21 MB of classes on it
# would collect all garbage, several times before Spark has begun. Whoever sets the variable has the last word.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

TESTS = Path(__file__).parent
STARTS_A_JVM = {TESTS / "spark_jobs", TESTS / "acceptance", TESTS / "clients"}  # with and without the fixture


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test by what it uses, so that nobody keeps a list; whoever marks one ``slow`` says why."""
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if "spark_remote" in used or STARTS_A_JVM & set(item.path.parents):
            item.add_marker(pytest.mark.spark)
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "postgres" in used or parameters.get("catalog_kind") == "postgresql":
            item.add_marker(pytest.mark.postgres)
        for slow in item.iter_markers("slow"):
            assert slow.kwargs.get("reason"), f"{item.nodeid}: say why it is slow"
    marked_files = {item.path for item in items if item.get_closest_marker("slow")}
    _mark_measured(items)
    if hasattr(config, "workerinput"):  # the longest first, so that no process of the run waits long for the other
        items.sort(key=lambda item: (item.get_closest_marker("spark") is None, item.path not in marked_files))


def _mark_measured(items: list[pytest.Item]) -> None:
    measured = slow_functions()
    for item in items:
        if item.nodeid.partition("[")[0] in measured:
            item.add_marker(pytest.mark.slow(reason=f"took more than {MOST_SECONDS} s when it was measured"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What ten thousand tests are made of stays until the end: the collector of garbage need not look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def spark_remote(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of a real Spark Connect server that answers, the same for the whole run."""
    from spark_jobs.server import EmbeddedServer  # noqa: PLC0415  # takes seconds, with all of pandas

    folder = run_folder(tmp_path_factory, pytestconfig)

    @contextmanager
    def opened() -> Iterator[str]:
        # Each session leaves the process that forked its Python workers behind: one of PySpark's own is smaller.
        server = EmbeddedServer(folder / "spark", java_options=["-Dspark.python.daemon.module=pyspark.daemon"])
        server.start()
        server.wait_ready(120)
        yield server.remote
        server.stop()

    with shared(folder, "spark", opened) as remote:
        yield remote


@pytest.fixture(scope="session")
def spark(spark_remote: str) -> Iterator[SparkConnection]:
    """A connection to the run's Spark server, set as one to a server of our own."""
    from spark_jobs.session import SparkConnection  # noqa: PLC0415  # as above

    connection = SparkConnection(spark_remote)
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of a real PostgreSQL server, the same for the whole run; ``TEMPLATE`` is a migrated catalog on it."""

    @contextmanager
    def opened() -> Iterator[str]:
        with postgres_server() as url, postgres_database(url, TEMPLATE) as template:
            _migrate(template)
            yield url

    with shared(run_folder(tmp_path_factory, pytestconfig), "postgres", opened) as url:
        yield url


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The ``host:port`` of a real S3 server, the same for the whole run."""
    with shared(run_folder(tmp_path_factory, pytestconfig), "s3", s3_server) as endpoint:
        yield endpoint


@pytest.fixture
def store(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, with what a client needs to be let in."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return s3_endpoint


@pytest.fixture
def line(store: str) -> Iterator[FaultyLine]:
    """A line to the store that fails when it is told to."""
    opened = FaultyLine(store)
    yield opened
    opened.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a migrated, empty catalog, to be copied."""
    path = tmp_path_factory.mktemp("template") / "catalog.db"
    _migrate(f"sqlite:///{path}")
    return path


def _migrate(url: str) -> None:
    database = CatalogDatabase(url)
    database.migrate()
    database.close()
