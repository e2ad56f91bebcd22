"""Servers that answer, and are not Spark enough: each is told by what it does otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from app.core.errors import Unavailable
from app.core.plan.jobs import CompactionJob, Job, MergeJob, Progress
from app.services.executor import MergeSite
from app.services.merges import request_merge
from app.services.spark_trial import try_spark
from app.storage.layout import Warehouse
from app.worker import Upkeep, Worker
from tests.services.builders import QUIET, SUM, create_table, post
from tests.services.executor import BrokenExecutor, PythonExecutor, path_of
from tests.services.test_worker import TaskKind, succeeded, until

Spoil = Callable[[pa.Table], pa.Table]


class OtherServer(PythonExecutor):
    """Writes what ``spoil`` makes of the rows, from the job of kind ``kind`` on."""

    def __init__(self, spoil: Spoil, kind: type[Job] = MergeJob) -> None:
        super().__init__()
        self.spoil, self.kind = spoil, kind

    def run(self, tag: str, job: Job, report: Progress) -> None:
        super().run(tag, job, report)
        if isinstance(job, self.kind):
            assert isinstance(job, MergeJob | CompactionJob)
            for file in path_of(job.output).glob("*.parquet"):
                pq.write_table(self.spoil(pq.read_table(file)), file)


def reversed_rows(rows: pa.Table) -> pa.Table:
    return rows.take(list(range(len(rows)))[::-1])


def without_ids(rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None).cast(pa.schema([field.remove_metadata() for field in rows.schema]))


def other(name: str) -> Spoil:
    """The column holds the same for all keys, as where a function is another one."""

    def spoil(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(name)
        [some] = pc.drop_null(rows[name])[:1].to_pylist()
        return rows.set_column(
            place, rows.schema.field(place), pa.array([some] * len(rows), rows.schema.field(place).type)
        )

    return spoil


def only_half(rows: pa.Table) -> pa.Table:
    return rows.slice(0, len(rows) // 2)


def test_what_folds_as_python_does_is_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    executor = PythonExecutor()
    assert try_spark(Warehouse(str(tmp_path)), executor) == ()
    assert (executor.merges, executor.compactions) == (2, 1)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow(reason="tries a server in a dozen ways")
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (reversed_rows, "not in the order that was asked for"),
        (without_ids, "no Parquet field ids of id, edited, status"),
        (other("status"), "the column status (the latest by its sequence)"),
        (other("total"), "the column total (sum)"),
        (other("visitors"), "the column visitors (hll_sketch)"),
        (only_half, "instead of 0"),
    ],
    ids=["order", "ids", "sequence", "sum", "sketch", "rows"],
)
@pytest.mark.parametrize("kind", [MergeJob, CompactionJob])
def test_what_a_server_does_otherwise_is_told(tmp_path: Path, kind: type[Job], spoil: Spoil, told: str) -> None:
    faults = try_spark(Warehouse(str(tmp_path)), OtherServer(spoil, kind))
    assert any(told in fault for fault in faults)
    assert faults[0].startswith("a merge of two batches" if kind is MergeJob else "a compaction")
    assert [*tmp_path.iterdir()] == []


def test_a_server_that_lacks_something_is_told_by_its_own_words(tmp_path: Path) -> None:
    broken = BrokenExecutor(ValueError("no such function: max_by\nat line 7"))
    assert try_spark(Warehouse(str(tmp_path)), broken) == ("a job failed: no such function: max_by",)


def test_a_server_that_is_away_or_writes_elsewhere_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        try_spark(Warehouse(str(tmp_path)), BrokenExecutor(Unavailable("Spark does not answer")))

    class Elsewhere(PythonExecutor):
        def merge(self, *_: object) -> None:
            pass

    with pytest.raises(Unavailable, match="KEYFOLD_WAREHOUSE"):
        try_spark(Warehouse(str(tmp_path)), Elsewhere())


@pytest.mark.slow(reason="a worker looks for work in its own time")
def test_nothing_is_merged_or_compacted_until_the_server_is_well(site: MergeSite) -> None:
    executor = OtherServer(reversed_rows)
    site = MergeSite(site.database, site.warehouse, executor, site.lease_seconds)
    table = create_table(site.database, SUM | QUIET)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    request_merge(site.database, table.id)
    worker = Worker(site, 0.05, upkeep=Upkeep(tries_spark=True, try_again_seconds=0.05))
    worker.start()
    try:
        assert until(lambda: executor.merges >= 4)  # two trials
        assert worker.trusts is False
        assert succeeded(site, table, TaskKind.MERGE) == 0
        executor.spoil = lambda rows: rows
        assert until(lambda: succeeded(site, table, TaskKind.MERGE) == 1)
        assert worker.trusts is True
    finally:
        worker.stop()
