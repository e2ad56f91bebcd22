"""A minute of the fault campaign, on real processes: nothing is lost or doubled. `make soak` runs an hour of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.faults.faults import FAULTS
from lab.faults.soak import campaign
from lab.faults.system import POSTGRES, SQLITE

SEED = 20261122
ON_SPARK = ["kill the JVM", "kill a worker"]
ON_SQLITE = ["kill everything", "staging file gone", "clocks an hour ahead"]
ON_POSTGRES = ["kill PostgreSQL", "freeze a worker", "read-only PostgreSQL"]


def check(folder: Path, catalog: str, names: list[str], *, spark: bool) -> None:
    with campaign(folder, catalog, SEED, names, spark=spark) as struck:
        tally = struck.run(0)
        report = "\n".join(tally.lines(struck.seen))
    assert tally.faults == [], report
    assert sum(tally.struck.values()) + len(tally.skipped) == len(names), report
    assert tally.batches > 10, report
    assert tally.rows > 100, report


@pytest.mark.spark
@pytest.mark.slow(reason="starts two API processes, two workers and a JVM of its own, and kills them")
def test_nothing_is_lost_or_doubled_when_processes_and_the_jvm_are_killed(tmp_path: Path) -> None:
    check(tmp_path, SQLITE, ON_SPARK, spark=True)


@pytest.mark.slow(reason="starts two API processes and two workers, and kills them")
def test_nothing_is_lost_or_doubled_on_sqlite_whatever_strikes(tmp_path: Path) -> None:
    check(tmp_path, SQLITE, ON_SQLITE, spark=False)


@pytest.mark.postgres
@pytest.mark.slow(reason="starts two services, two workers and a PostgreSQL of its own, and kills them")
def test_nothing_is_lost_or_doubled_on_postgresql_whatever_strikes(tmp_path: Path) -> None:
    check(tmp_path, POSTGRES, ON_POSTGRES, spark=False)


def test_each_fault_is_one_of_some_catalog() -> None:
    assert all(set(fault.catalogs) <= {SQLITE, POSTGRES} and fault.catalogs for fault in FAULTS.values())
    assert {*ON_SPARK, *ON_SQLITE, *ON_POSTGRES} <= FAULTS.keys()
