"""A thousand changes of a real database through a real Debezium to the service; `make debezium` runs 100,000."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.debezium.feeder import LIST
from lab.debezium.pipeline import SOURCES, Pipeline, Watcher
from lab.debezium.source import Impossible

CHANGES, SEED = 1_000, 20261127


@pytest.mark.spark
@pytest.mark.slow(reason="starts a database, two JVMs and a service of its own, and kills each")
@pytest.mark.parametrize("source", SOURCES)
def test_the_tables_are_those_of_the_database_whatever_was_killed(source: str) -> None:
    with ExitStack() as exits:
        # Not pytest's tmp_path: the user whom the database runs as must be able to go there.
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="keyfold-debezium-")))
        folder.chmod(0o755)
        try:
            pipeline = Pipeline(folder, source, LIST, SEED, exits)
        except Impossible as reason:
            pytest.skip(f"no changes of {source} to follow: {reason}")
        watcher = Watcher(pipeline)
        watcher.start()
        pipeline.run(CHANGES)
        watcher.end()
        assert [*watcher.faults, *pipeline.differences()] == []
        assert pipeline.count() > 300
        assert watcher.looks > 0
