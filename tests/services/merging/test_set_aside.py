"""One bad batch stops nothing but itself: it is found, named and set aside, and its table goes on without it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from app.core.errors import Conflict, ErrorCode, NotFound
from app.core.table.history import Batch, BatchState, Table, TaskState
from app.files.layout import staging_file
from app.services.batches.batches import retry_batch, withdraw_batch
from app.services.merging.merges import request_due_merges, request_merge
from app.services.rows.lookups import Images
from app.services.rows.views import view_of
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.services.upkeep.backups import back_up
from app.services.upkeep.sweeps import forget_history, sweep
from app.storage.backup_folder import BackupFolder
from tests.services.builders import QUIET, SUM, batches_of, create_table, post, run_next_merge, tasks_of, totals
from tests.services.damaged import flip
from tests.services.upkeep.test_sweeps import NO_GRACE, age

WIDE = ("shop", "wide")
LARGEST = 2**63 - 1


def batches(site: MergeSite, table: Table, *states: BatchState) -> list[Batch]:
    return [batch for batch in batches_of(site.database, table) if batch.state in states]


def merge_all(site: MergeSite, table: Table) -> list[TaskState]:
    """As a worker does it whom nobody lets wait: until nothing is staged."""
    for _ in range(40):
        if not batches(site, table, BatchState.STAGED):
            break
        if not run_next_merge(site, "worker"):
            request_merge(site.database, table.id)
    return [task.state for task in tasks_of(site.database, table)][::-1]


def stage(site: MergeSite, *amounts: int, key: int = 1) -> list[Batch]:
    return [post(site.database, site.warehouse, {"id": key, "n": amount}) for amount in amounts]


@pytest.fixture
def table(site: MergeSite) -> Table:
    return create_table(site.database, SUM | QUIET)


def test_a_batch_that_no_merge_can_fold_is_found_among_others(site: MergeSite, images: Images, table: Table) -> None:
    stage(site, 1, 2, 3)
    [bad] = stage(site, LARGEST, key=1)
    stage(site, 10, 20, 30, 40)
    states = merge_all(site, table)
    [found] = batches(site, table, BatchState.POISONED)
    assert (found.id, found.number) == (bad.id, 4)
    assert found.fault is not None
    assert "'n'" in found.fault
    assert "{'id': 1}" in found.fault, "the key"
    assert len(batches(site, table, BatchState.MERGED)) == 7
    assert totals(site.database, images, table, [1], latest=True) == [106]
    assert states.count(TaskState.FAILED) <= 5, "halves, and the last one twice"
    assert states[-1] is TaskState.SUCCEEDED


def test_a_batch_whose_total_is_too_large_is_retried_under_a_wider_type(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | QUIET, columns=(("id", "BIGINT"), ("n", "INT")))
    stage(site, 1)
    [bad] = stage(site, 2**31 - 1)
    merge_all(site, table)
    assert [batch.id for batch in batches(site, table, BatchState.POISONED)] == [bad.id]
    wider = {"action": "updateColumnType", "fieldNames": ["n"], "newDataType": "BIGINT"}
    alter_table(site.database, WIDE, [wider])
    retry_batch(site.database, WIDE, bad.id)
    assert totals(site.database, images, table, [1], latest=True) == [2**31]
    assert merge_all(site, table)[-1] is TaskState.SUCCEEDED
    assert totals(site.database, images, table, [1]) == [2**31]


def test_a_batch_that_the_failure_names_is_set_aside_without_merging_halves(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, SUM | QUIET, columns=(("id", "BIGINT"), ("n", "DECIMAL(38, 2)")))
    large = 9 * 10**35  # of which the hidden total holds one
    [*_, bad, _, _, _] = stage(site, 1, large, 2, large, 4, 8, 16)
    assert merge_all(site, table) == [TaskState.FAILED, TaskState.FAILED, TaskState.SUCCEEDED]
    [found] = batches(site, table, BatchState.POISONED)
    assert (found.id, found.number) == (bad.id, 4)
    assert "batch 4" in (found.fault or "")
    assert totals(site.database, images, table, [1], latest=True) == [f"{large + 31}.00"]


def test_several_bad_batches_are_found_one_after_the_other(site: MergeSite, images: Images, table: Table) -> None:
    stage(site, 1, LARGEST, 2, 4, LARGEST, 8)
    merge_all(site, table)
    assert [batch.number for batch in batches(site, table, BatchState.POISONED)] == [2, 5]
    assert totals(site.database, images, table, [1], latest=True) == [15]
    stage(site, 16, 32)
    states = merge_all(site, table)
    assert states[-1] is TaskState.SUCCEEDED
    assert states[-2] is TaskState.SUCCEEDED, "both in one merge: nobody is looked for any more"
    assert totals(site.database, images, table, [1], latest=True) == [63]


def test_what_makes_up_for_a_total_in_the_same_merge_sets_nothing_aside(
    site: MergeSite, images: Images, table: Table
) -> None:
    stage(site, 1, LARGEST, -LARGEST)
    assert merge_all(site, table)[-1] is TaskState.SUCCEEDED
    assert totals(site.database, images, table, [1], latest=True) == [1]


def test_a_batch_that_was_set_aside_is_tried_again_as_the_last(site: MergeSite, images: Images, table: Table) -> None:
    [_, bad] = stage(site, 1, LARGEST)
    merge_all(site, table)
    stage(site, -10)
    merge_all(site, table)
    again = retry_batch(site.database, WIDE, bad.id)
    assert (again.state, again.number, again.fault) == (BatchState.STAGED, 4, None)
    merge_all(site, table)
    assert batches(site, table, BatchState.POISONED) == []
    assert totals(site.database, images, table, [1], latest=True) == [LARGEST - 9]
    with pytest.raises(Conflict) as refused:
        retry_batch(site.database, WIDE, bad.id)
    assert refused.value.code is ErrorCode.BATCH_NOT_SET_ASIDE


def test_a_batch_that_was_set_aside_may_be_withdrawn(site: MergeSite, table: Table) -> None:
    [_, bad] = stage(site, 1, LARGEST)
    merge_all(site, table)
    assert withdraw_batch(site.database, site.warehouse, WIDE, bad.id).state is BatchState.DELETED
    with pytest.raises(NotFound):
        retry_batch(site.database, WIDE, "another")


@pytest.mark.parametrize("gone", [True, False])
def test_a_batch_whose_file_is_damaged_or_gone_is_set_aside_after_some_tries(
    site: MergeSite, images: Images, table: Table, gone: bool
) -> None:
    [_, bad, _] = stage(site, 1, 2, 4)
    path = Path(site.warehouse.path(*staging_file(table.id, bad.file)))
    content = path.read_bytes()
    if gone:
        path.unlink()
    else:
        flip(path, len(content) // 2)
    assert merge_all(site, table) == [TaskState.FAILED] * 3 + [TaskState.SUCCEEDED]
    [found] = batches(site, table, BatchState.DAMAGED)
    assert found.id == bad.id
    assert found.fault is not None
    assert bad.file in found.fault
    assert totals(site.database, images, table, [1], latest=True) == [5]
    path.write_bytes(content)
    retry_batch(site.database, WIDE, bad.id)
    merge_all(site, table)
    assert totals(site.database, images, table, [1], latest=True) == [7]


def test_what_is_set_aside_is_kept_counted_and_backed_up(site: MergeSite, table: Table, tmp_path: Path) -> None:
    [_, bad] = stage(site, 1, LARGEST)
    merge_all(site, table)
    age(site)
    sweep(site.database, site.warehouse, NO_GRACE)
    forget_history(site.database, timedelta(0))
    assert [batch.id for batch in batches(site, table, BatchState.POISONED)] == [bad.id]
    assert Path(site.warehouse.path(*staging_file(table.id, bad.file))).exists()
    with site.database.reading() as repository:
        assert view_of(repository, table).set_aside == 1
    backup = back_up(site.database, site.warehouse, BackupFolder(tmp_path / "backups"), "1", lambda _: None)
    assert (backup.files, backup.damaged) == (3, [])
    assert request_due_merges(site.database).tables == 0, "and nothing is due"
