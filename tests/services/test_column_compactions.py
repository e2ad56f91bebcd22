"""Compactions of many rows by whole columns, where they are larger than a window or a file; what they share with small
ones is in test_small_compactions.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from app.core.errors import Cancelled
from app.core.table.history import Table, TaskState
from app.services import column_compactions, small_compactions
from app.services.compactions import run_compaction
from app.services.executor import MergeSite
from app.services.leases import Lease
from app.services.lookups import Images
from app.storage import combined_runs
from tests.services.builders import QUIET, compact, create_table, schema, snapshot_of, totals
from tests.services.damaged import damage_of, files_in, flip
from tests.services.executor import BrokenExecutor, PythonExecutor
from tests.services.test_small_compactions import OPTIONS, claimed, last_compaction, merge, table_of_two_runs

KEYS = 1500  # of which each run has two thirds, so that each is several windows


@pytest.fixture
def wide(site: MergeSite, monkeypatch: pytest.MonkeyPatch) -> MergeSite:
    """A worker that compacts all but nothing by whole columns, a kilobyte at a time."""
    monkeypatch.setattr(small_compactions, "MOST_VALUES", 0)
    monkeypatch.setattr(combined_runs, "WINDOW_BYTES", 2**10)
    return replace(site, small_merge_records=1, column_compaction_bytes=2**30)


def without_executor(site: MergeSite) -> MergeSite:
    return replace(site, executor=BrokenExecutor(OSError("nobody is there")))


def table_of_many_rows(site: MergeSite, options: dict[str, str]) -> Table:
    table = create_table(site.database, OPTIONS | options)
    merge(site, table, *({"id": number, "n": 1} for number in range(2 * KEYS // 3)))
    merge(site, table, *({"id": number, "n": 10} for number in range(KEYS // 3, KEYS)))
    return table


def expected() -> list[int]:
    third = KEYS // 3
    return [1] * third + [11] * third + [10] * third


def test_a_run_has_as_many_files_as_its_size_asks_for(wide: MergeSite, images: Images) -> None:
    table = table_of_many_rows(wide, {"target-file-size": "8 kb"})
    compact(without_executor(wide), table)
    snapshot = snapshot_of(wide.database, table)
    assert snapshot is not None
    [run] = snapshot.runs
    assert len(run.files) > 1
    assert all(one.max_token < other.min_token for one, other in zip(run.files, run.files[1:], strict=False))
    assert (run.rows, run.live_rows) == (KEYS, KEYS)
    assert totals(wide.database, images, table, range(KEYS)) == expected()


def test_larger_files_than_the_setting_are_left_to_the_executor(wide: MergeSite, executor: PythonExecutor) -> None:
    for number, most in enumerate((0, 1, 2**30)):
        table = table_of_two_runs(wide, name=f"t{number}")
        compact(replace(wide, column_compaction_bytes=most), table)
    assert executor.compactions == 2
    compact(replace(wide, small_merge_records=0), table_of_two_runs(wide, name="all"))
    assert executor.compactions == 3


def test_many_runs_are_left_to_the_executor(
    wide: MergeSite, executor: PythonExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_compactions, "MOST_RUNS", 1)
    compact(wide, table_of_two_runs(wide))
    assert executor.compactions == 1


def test_values_that_are_made_of_values_are_left_to_the_executor(
    wide: MergeSite, executor: PythonExecutor, images: Images
) -> None:
    options = QUIET | {"merge-engine": "aggregation", "fields.n.aggregate-function": "product"}
    table = table_of_two_runs(wide, options)
    compact(wide, table)
    assert executor.compactions == 1
    assert totals(wide.database, images, table, [1, 2, 3]) == [10, 2, 3]


def test_keys_of_fractions_are_left_to_the_executor(wide: MergeSite, executor: PythonExecutor) -> None:
    columns = (("id", "DOUBLE"), ("n", "BIGINT"))
    with wide.database.transaction() as repository:
        repository.databases.create("shop", {})
        table = repository.tables.create("shop", "wide", schema(*columns, options=OPTIONS))
    for number in (-0.0, 0.0):
        merge(wide, table, {"id": number, "n": 1})
    compact(wide, table)
    snapshot = snapshot_of(wide.database, table)
    assert snapshot is not None
    assert (executor.compactions, [run.rows for run in snapshot.runs]) == (1, [1])


def test_one_that_waits_for_another_ends_when_it_is_cancelled(wide: MergeSite) -> None:
    table = table_of_many_rows(wide, {})
    lease = claimed(wide, table)
    waiting = threading.Thread(target=run_compaction, args=(lease,))
    with column_compactions._one_at_a_time:
        waiting.start()
        with wide.database.transaction() as repository:
            repository.tasks.request_cancel(table.id, lease.claimed.task.id)
        waiting.join(30)
        assert not waiting.is_alive()
    assert last_compaction(wide, table).state is TaskState.CANCELLED
    compact(without_executor(wide), table)


class StoppedInside(Lease):
    """Somebody cancels it when some windows are done; ``done`` are the shares of the work that it was told of."""

    done: tuple[float, ...] = ()

    def report(self, fraction: float, *_: object) -> None:
        self.done = (*self.done, fraction)

    def check(self) -> None:
        if len(self.done) == 3:
            raise Cancelled(self.claimed.task.id)


def test_one_that_is_cancelled_midway_ends_at_once_and_leaves_no_thread(wide: MergeSite, images: Images) -> None:
    table = table_of_many_rows(wide, {})
    before, threads = snapshot_of(wide.database, table), set(threading.enumerate())
    held = claimed(wide, table)
    lease = StoppedInside(held.site, held.claimed)
    run_compaction(lease)
    assert last_compaction(wide, table).state is TaskState.CANCELLED
    assert 0 < lease.done[0] < lease.done[1] < lease.done[2] < 0.5
    assert not {thread for thread in threading.enumerate() if thread not in threads}
    assert snapshot_of(wide.database, table) == before
    compact(without_executor(wide), table)
    assert totals(wide.database, images, table, range(KEYS)) == expected()


def test_damage_that_is_met_midway_is_noted_and_leaves_no_thread(wide: MergeSite, executor: PythonExecutor) -> None:
    table = table_of_many_rows(wide, {})
    path, _ = files_in(wide.warehouse, table.id, "runs")
    flip(path, path.stat().st_size // 2)
    threads = set(threading.enumerate())
    compact(wide, table)
    assert last_compaction(wide, table).state is TaskState.FAILED
    assert executor.compactions == 0
    assert [damage.path.rpartition("/")[2] for damage in damage_of(wide.database, table)] == [path.name]
    assert not {thread for thread in threading.enumerate() if thread not in threads}
