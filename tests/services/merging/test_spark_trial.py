"""Servers that answer, and are not Spark enough: each is told by what it does otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from app.core.errors import Unavailable
from app.files.layout import Warehouse, data_file
from app.kernel.tasks import Job, Progress, Result, Task, Work
from app.services.merging.merges import request_merge
from app.services.merging.spark_trial import try_spark
from app.services.shared.executor import MergeSite
from app.services.upkeep.forgettings import ask_to_forget
from app.worker import Upkeep, Worker
from tests.services.builders import QUIET, SUM, create_table, post
from tests.services.executor import BrokenExecutor, PythonExecutor
from tests.services.merging.test_worker import TaskKind, succeeded, until

Spoil = Callable[[pa.Table], pa.Table]


class OtherServer(PythonExecutor):
    """Writes what ``spoil`` makes of the rows, from the tasks of kind ``kind`` on."""

    def __init__(self, spoil: Spoil | None, kind: Work = Work.MERGE) -> None:
        super().__init__()
        self.spoil, self.kind = spoil, kind

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:
        return [self._spoilt(job, *one) for one in zip(job.tasks, super().run(tag, job, report), strict=True)]

    def _spoilt(self, job: Job, task: Task, result: Result) -> Result:
        if task.work is not self.kind or self.spoil is None:
            return result
        [written] = result.files
        warehouse = Warehouse(job.warehouse)
        path = Path(warehouse.path(*data_file(task.table_id, task.output, written.file.name)))
        pq.write_table(self.spoil(pq.read_table(path)), path)
        return replace(result, files=(replace(written, file=replace(written.file, size_bytes=path.stat().st_size)),))


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
    ("spoil", "reported"),
    [
        (reversed_rows, ", _kf_token"),
        (without_ids, "id, edited, status"),
        (other("status"), ": status"),
        (other("total"), ": total"),
        (other("visitors"), ": visitors"),
        (only_half, ", _kf_token"),
    ],
    ids=["order", "ids", "sequence", "sum", "sketch", "rows"],
)
@pytest.mark.parametrize("kind", [Work.MERGE, Work.COMPACT])
def test_what_a_server_does_otherwise_is_reported(tmp_path: Path, kind: Work, spoil: Spoil, reported: str) -> None:
    faults = try_spark(Warehouse(str(tmp_path)), OtherServer(spoil, kind))
    begins = "merge 1" if kind is Work.MERGE else "a compaction"
    assert faults[0].startswith(f"{begins} folds otherwise there than here: ")
    assert reported in faults[0]
    assert [*tmp_path.iterdir()] == []


class Bare(PythonExecutor):
    """Its workers lack a package."""

    def missing(self) -> tuple[str, ...]:
        return ("its Python workers lack xxhash: pip install xxhash",)


def test_what_workers_lack_is_said_before_anything_runs(tmp_path: Path) -> None:
    executor = Bare()
    assert try_spark(Warehouse(str(tmp_path)), executor) == executor.missing()
    assert executor.merges == 0


def test_a_server_that_lacks_something_is_reported_by_its_own_words(tmp_path: Path) -> None:
    broken = BrokenExecutor(ValueError("no such function: max_by\nat line 7"))
    assert try_spark(Warehouse(str(tmp_path)), broken) == ("a job failed: no such function: max_by",)


def test_a_server_that_is_away_or_writes_elsewhere_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        try_spark(Warehouse(str(tmp_path)), BrokenExecutor(Unavailable("Spark does not answer")))

    class Elsewhere(PythonExecutor):
        def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
            results = super().merge(tag, job, report)
            [file] = (tmp_path / job.tasks[0].table_id).rglob("part-*.parquet")
            file.unlink()
            return results

    with pytest.raises(Unavailable, match="KEYFOLD_WAREHOUSE"):
        try_spark(Warehouse(str(tmp_path)), Elsewhere())


@pytest.mark.slow(reason="a worker looks for work in its own time")
def test_nothing_is_merged_compacted_or_forgotten_until_the_server_is_well(site: MergeSite) -> None:
    executor = OtherServer(reversed_rows)
    site = MergeSite(site.database, site.warehouse, executor, site.lease_seconds)
    table, other = create_table(site.database, SUM | QUIET), create_table(site.database, SUM | QUIET, "other")
    for name in ("wide", "other"):
        post(site.database, site.warehouse, {"id": 1, "n": 1}, name=name)
    request_merge(site.database, table.id)
    with site.database.transaction() as repository:
        ask_to_forget(repository, other, [{"id": 1}], "officer")

    def waiting() -> list[str]:
        with site.database.reading() as repository:
            return list(repository.forgettings.tables_pending())

    worker = Worker(site, upkeep=Upkeep(tries_spark=True, retry_seconds=0.05))
    worker.start()
    try:
        assert until(lambda: executor.merges >= 4)  # two trials
        assert worker.trusts is False
        assert succeeded(site, table, TaskKind.MERGE) == 0
        assert waiting() == [other.id]
        executor.spoil = None
        assert until(lambda: succeeded(site, table, TaskKind.MERGE) == 1)
        assert worker.trusts is True
        assert until(lambda: waiting() == [])
    finally:
        worker.stop()
