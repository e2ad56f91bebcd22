"""Damaged files: what merges, compactions and lookups make of them, and what is kept of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.shared.models import batches, data_files
from app.core.errors import Unavailable
from app.core.table.history import BatchState, Table, TaskKind, TaskState
from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind
from app.files.layout import Warehouse
from app.files.named_files import file_of_batch
from app.kernel.tasks import Job, Progress, Result
from app.services.rows.kept_views import FAILED_SECONDS, Views
from app.services.rows.lookups import Consistency, Images
from app.services.shared.damage import failure_of, named_files, read_again
from app.services.shared.executor import MergeSite
from app.services.upkeep.scrubs import verify
from tests.services.builders import (
    QUIET,
    SUM,
    committed,
    compact,
    create_table,
    merge,
    merge_staged,
    post,
    snapshot_of,
    totals,
)
from tests.services.damaged import damage_of, files_in, flip, flipped, gone
from tests.services.executor import PythonExecutor

CALM = SUM | QUIET | {"num-sorted-run.compaction-trigger": "50"}
LOOKUP = CALM | {"changelog-producer": "lookup"}


def merged_rows(site: MergeSite, table: Table, *ids: int) -> None:
    post(site.database, site.warehouse, *({"id": one, "n": one} for one in ids))
    assert merge(site, table).state is TaskState.SUCCEEDED


def test_every_file_that_is_written_has_its_digests_in_the_catalog(site: MergeSite) -> None:
    table = create_table(site.database, LOOKUP)
    merged_rows(site, table, 1, 2)
    post(site.database, site.warehouse, {"id": 1, "n": 1})
    with site.database.reading() as repository:
        files = named_files(repository, table.id)
    assert [file.kind for file in files] == [FileKind.STAGING, FileKind.HISTORY, FileKind.RUN, FileKind.CHANGELOG]
    assert all(file.digest for file in files)
    assert [file.block_digests is None for file in files] == [True, True, False, False]
    assert {Path(site.warehouse.path(file.path)).stat().st_size for file in files} == {f.size_bytes for f in files}


@pytest.mark.parametrize("lost", [False, True])
def test_a_merge_of_a_damaged_batch_changes_nothing_and_names_the_batch(
    site: MergeSite, images: Images, lost: bool
) -> None:
    table = create_table(site.database, CALM)
    for number in range(3):
        post(site.database, site.warehouse, {"id": number, "n": 1})
    bad = files_in(site.warehouse, table.id, "staging")[1]
    with gone(bad) if lost else flipped(bad, 9):
        failed = merge(site, table)
        assert failed.state is TaskState.FAILED
        assert f"{table.id}/staging/{bad.name}" in (failed.error or "")
        assert "withdraw batch 2 (DELETE …/batches/" in (failed.error or "")
        assert not committed(site.database, table)
    [found] = damage_of(site.database, table)
    assert (found.kind, found.batch_number) == (FileKind.STAGING, 2)
    assert found.reason is (DamageReason.MISSING if lost else DamageReason.WRONG_CONTENT)
    assert merge(site, table).state is TaskState.SUCCEEDED
    assert totals(site.database, images, table, [0, 1, 2]) == [1, 1, 1]


def test_all_damaged_batches_of_a_merge_are_kept_at_once(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    for number in range(5):
        post(site.database, site.warehouse, {"id": number, "n": 1})
    files = files_in(site.warehouse, table.id, "staging")
    for number in (0, 3):
        flip(files[number])
    assert merge(site, table).state is TaskState.FAILED
    assert {one.batch_number for one in damage_of(site.database, table)} == {1, 4}


def test_a_compaction_of_a_damaged_run_changes_nothing_and_names_the_file(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, CALM)
    merged_rows(site, table, 1, 2)
    merged_rows(site, table, 2, 3)
    old = files_in(site.warehouse, table.id, "runs")[0]
    with flipped(old):
        failed = compact(site, table)
        assert (failed.kind, failed.state) == (TaskKind.COMPACTION, TaskState.FAILED)
        assert old.name in (failed.error or "")
        assert len(snapshot_of(site.database, table).runs) == 2
    assert compact(site, table).state is TaskState.SUCCEEDED
    assert totals(site.database, images, table, [1, 2, 3]) == [1, 4, 3]


def test_changes_are_not_looked_up_in_a_damaged_run(site: MergeSite) -> None:
    table = create_table(site.database, LOOKUP)
    merged_rows(site, table, 1)
    with flipped(files_in(site.warehouse, table.id, "runs")[0], 60):
        post(site.database, site.warehouse, {"id": 1, "n": 1})
        assert "is damaged" in (merge(site, table).error or "")
    assert merge(site, table).state is TaskState.SUCCEEDED


def test_lookups_of_other_tokens_go_on_beside_a_damaged_file(site: MergeSite, images: Images) -> None:
    images.asking.builds = False

    class InTwo(PythonExecutor):
        """Writes two files."""

        def merge(self, tag: str, job: Job, report: Progress) -> list[Result]:
            [task] = job.tasks
            halves = (replace(task, last_token=0), replace(task, first_token=1, place=1))
            first, second = super().merge(tag, replace(job, tasks=halves), report)
            return [replace(first, files=(*first.files, *second.files))]

    table = create_table(site.database, CALM)
    post(site.database, site.warehouse, *({"id": n, "n": n} for n in range(40)))
    assert merge(replace(site, executor=InTwo()), table).state is TaskState.SUCCEEDED
    first, second = files_in(site.warehouse, table.id, "runs")
    in_second = pq.read_metadata(second).num_rows
    assert totals(site.database, images, table, range(40)) == [*range(40)]
    answered = 0
    for bad in (flipped(first, 700), gone(first)):
        with bad:
            for number in range(40):
                with suppress(DamagedFile):
                    assert totals(site.database, images, table, [number]) == [number]
                    answered += 1
    assert answered == 2 * in_second
    assert totals(site.database, images, table, range(40)) == [*range(40)]


def test_a_damaged_batch_is_told_to_who_wants_the_latest_and_to_no_other(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, CALM)
    merged_rows(site, table, 1)
    post(site.database, site.warehouse, {"id": 1, "n": 5})
    now = [0.0]
    views = Views(site.database, site.warehouse, clock=lambda: now[0])
    file = files_in(site.warehouse, table.id, "staging")[-1]
    with flipped(file), pytest.raises(DamagedFile) as found:
        views.current(("shop", "wide"), None)
    assert found.value.file.batch_number == 2
    assert totals(site.database, images, table, [1]) == [1]
    now[0] = FAILED_SECONDS
    view = views.current(("shop", "wide"), None)
    assert [record.values["n"] for record in view.staged_records(site.warehouse, (1,))] == [5]


def test_files_from_before_digests_go_on_to_be_read_and_are_checked_by_their_size_and_pages(
    site: MergeSite, images: Images, database: CatalogDatabase
) -> None:
    table = create_table(database, CALM)
    merged_rows(site, table, 1, 2)
    post(database, site.warehouse, {"id": 2, "n": 2})
    with database.transaction() as repository:
        repository.transaction.execute(batches.update().values(digest=None))
        repository.transaction.execute(data_files.update().values(digest=None, block_digests=None))
    assert totals(database, images, table, [1, 2], latest=True) == [1, 4]
    assert all(one.damage is None for one in verify(database, site.warehouse))
    for folder, latest in (("runs", False), ("staging", True)):
        file = files_in(site.warehouse, table.id, folder)[-1]
        whole = file.read_bytes()
        for content in (whole[:-1], whole[:200], b"", b"x" * len(whole)):
            file.write_bytes(content)
            with pytest.raises(DamagedFile, match=file.name):
                totals(database, images, table, [2], latest=latest)
            assert [one.file.path.endswith(file.name) for one in verify(database, site.warehouse) if one.damage] == [
                True
            ]
        file.write_bytes(whole)
    assert merge(site, table).state is TaskState.SUCCEEDED
    assert compact(site, table).state is TaskState.SUCCEEDED
    assert totals(database, images, table, [1, 2]) == [1, 4]


def test_damaged_batches_are_not_read_again_for_every_lookup(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    post(site.database, site.warehouse, {"id": 1, "n": 5})
    views, name = Views(site.database, site.warehouse, clock=lambda: 0.0), ("shop", "wide")
    file = files_in(site.warehouse, table.id, "staging")[0]
    with flipped(file), pytest.raises(DamagedFile):
        views.current(name, None)
    with pytest.raises(DamagedFile, match=file.name):  # although it was restored
        views.current(name, None)
    assert views.current(name, Consistency.MERGED).last_batch == 0
    post(site.database, site.warehouse, {"id": 1, "n": 5})  # another commit
    assert views.current(name, None).last_batch == 2


def test_a_batch_that_is_not_kept_in_memory_is_checked_when_it_is_read(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    post(site.database, site.warehouse, {"id": 1, "n": 5})
    view = Views(site.database, site.warehouse, most_bytes=0).current(("shop", "wide"), None)
    [file] = files_in(site.warehouse, table.id, "staging")
    with flipped(file, 10), pytest.raises(DamagedFile):
        list(view.staged_records(site.warehouse, (1,)))
    assert len(list(view.staged_records(site.warehouse, (1,)))) == 1


def test_who_meets_damage_is_told_of_it_and_it_is_kept(database: CatalogDatabase, warehouse: Warehouse) -> None:
    table = create_table(database, CALM)
    batch = post(database, warehouse, {"id": 1, "n": 1})
    damage = DamagedFile(file_of_batch(batch), DamageReason.MISSING, "no file")
    assert failure_of(database, damage) is damage
    assert [one.batch_id for one in damage_of(database, table)] == [batch.id]
    seen = database.commits
    assert failure_of(database, damage) is damage
    assert database.commits == seen


def test_a_file_that_nobody_needs_any_more_was_removed_and_is_no_damage(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    batch = post(site.database, site.warehouse, {"id": 1, "n": 1})
    merge_staged(site.database, site.warehouse, table.id)
    for reason, kind in ((DamageReason.MISSING, Unavailable), (DamageReason.WRONG_SIZE, DamagedFile)):
        assert type(failure_of(site.database, DamagedFile(file_of_batch(batch), reason, ""))) is kind
    assert damage_of(site.database, table) == []
    with site.database.reading() as repository:
        assert repository.batches.get(table.id, batch.id).state is BatchState.MERGED


def test_a_file_that_is_missing_is_looked_for_again_and_a_damaged_one_is_not(site: MergeSite) -> None:
    create_table(site.database, CALM)
    file = file_of_batch(post(site.database, site.warehouse, {"id": 1, "n": 1}))
    tries = 0

    def read(reason: DamageReason, until: int) -> int:
        nonlocal tries
        tries += 1
        if tries < until:
            raise DamagedFile(file, reason, "")
        return tries

    assert read_again(lambda: read(DamageReason.MISSING, 3)) == 3
    for reason, expected in ((DamageReason.MISSING, 3), (DamageReason.WRONG_SIZE, 1)):
        tries = 0
        with pytest.raises(DamagedFile):
            read_again(lambda reason=reason: read(reason, 9))  # type: ignore[misc]
        assert tries == expected
