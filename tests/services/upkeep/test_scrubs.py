"""Scrubs: everything is read, what is damaged is kept, what is well again is forgotten, and none of it in haste."""

from __future__ import annotations

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.shared.models import batches, changelog_files, data_files, history_files
from app.core.errors import Cancelled
from app.core.table.history import Table
from app.core.table.upkeep.damage import FileKind
from app.files.layout import Warehouse
from app.services.explaining.history import file_history
from app.services.shared.executor import MergeSite
from app.services.upkeep.scrubs import FIRST_SECONDS, ROUND_SECONDS, Finding, Pace, look_again, scrub, verify
from tests.services.builders import QUIET, SUM, create_table, merge_staged, post
from tests.services.damaged import damage_of, files_in, flip, flipped, gone

OPTIONS = SUM | QUIET | {"changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "50"}


@pytest.fixture
def table(database: CatalogDatabase, warehouse: Warehouse) -> Table:
    """Two merges with their changes, and a batch that waits."""
    made = create_table(database, OPTIONS)
    for _ in range(2):
        post(database, warehouse, {"id": 1, "n": 1})
        merge_staged(database, warehouse, made.id)
    file_history(database, warehouse, made)
    post(database, warehouse, {"id": 2, "n": 1})
    return made


def found_by(site: MergeSite) -> list[Finding]:
    return list(verify(site.database, site.warehouse))


def test_everything_that_the_catalog_names_is_read_and_other_files_are_nobodys_loss(
    site: MergeSite, table: Table
) -> None:
    other = create_table(site.database, OPTIONS, name="other")
    post(site.database, site.warehouse, {"id": 1, "n": 1}, name="other")
    found = found_by(site)
    assert all(one.damage is None for one in found)
    kinds = sorted(one.file.kind for one in found if one.file.table_id == table.id)
    assert kinds == [*[FileKind.CHANGELOG] * 2, FileKind.HISTORY, *[FileKind.RUN] * 2, FileKind.STAGING]
    assert set(kinds) == set(FileKind)
    assert [one.file.kind for one in found if one.file.table_id == other.id] == [FileKind.STAGING]

    merged = files_in(site.warehouse, table.id, "staging")[0]
    merged.unlink()
    assert all(one.damage is None for one in found_by(site))


def test_files_without_a_digest_have_the_one_of_their_bytes_once_they_were_read(site: MergeSite, table: Table) -> None:
    before = {one.file.path: one.file for one in found_by(site)}
    with site.database.transaction(wakes=False) as repository:
        for of in (batches, data_files, changelog_files, history_files):
            sums = [name for name in ("digest", "block_digests") if name in of.c]
            repository.transaction.execute(of.update().values(dict.fromkeys(sums)))
    unknown = found_by(site)
    assert [one.file.digest for one in unknown] == [None] * len(before)
    assert all(one.damage is None for one in unknown)
    assert {one.file.path: one.file for one in found_by(site)} == before
    file = files_in(site.warehouse, table.id, "runs")[0]
    with flipped(file, 6):
        [damaged] = [one for one in found_by(site) if one.damage is not None]
        assert damaged.file.path.endswith(file.name)


@pytest.mark.parametrize("folder", ["staging", "runs", "changelog"])
def test_what_is_damaged_or_missing_is_found_and_kept_until_it_is_well(
    site: MergeSite, table: Table, folder: str
) -> None:
    file = files_in(site.warehouse, table.id, folder)[-1]  # of the staging files the one that waits
    for bad in (flipped(file, 6), gone(file)):
        with bad:
            [damaged] = [one for one in found_by(site) if one.damage is not None]
            assert damaged.file.path.endswith(file.name)
            assert [one.path for one in damage_of(site.database, table)] == [damaged.file.path]
    assert len(damage_of(site.database, table)) == 1
    assert all(one.damage is None for one in found_by(site))
    assert damage_of(site.database, table) == []


def test_what_is_known_to_be_damaged_is_looked_at_again_and_nothing_else(site: MergeSite, table: Table) -> None:
    first, second = files_in(site.warehouse, table.id, "runs")
    flip(first)
    found_by(site)
    flip(second)
    look_again(site.database, site.warehouse)
    assert [one.path.endswith(first.name) for one in damage_of(site.database, table)] == [True]
    flip(first)
    look_again(site.database, site.warehouse)
    assert damage_of(site.database, table) == []


def test_the_damage_of_a_batch_that_was_given_up_is_forgotten(site: MergeSite, table: Table) -> None:
    files_in(site.warehouse, table.id, "staging")[-1].unlink()
    found_by(site)
    [damage] = damage_of(site.database, table)
    with site.database.transaction() as repository:
        repository.batches.delete_staged(table.id, damage.batch_id or "")
    look_again(site.database, site.warehouse)
    with site.database.reading() as repository:
        assert repository.damage.paths() == {}


class Watch:
    """A clock that only waiting moves."""

    def __init__(self, ends_after: float = 10**9) -> None:
        self.now = 0.0
        self.ends_after = ends_after

    def wait(self, seconds: float) -> bool:
        self.now += max(0.0, seconds)
        return self.now > self.ends_after


def test_a_scrub_reads_no_faster_than_it_may(site: MergeSite, table: Table) -> None:
    watch = Watch()
    found = list(verify(site.database, site.warehouse, Pace(100, watch.wait, lambda: watch.now)))
    assert watch.now == pytest.approx(sum(one.file.size_bytes for one in found) / 100)


def test_a_scrub_that_had_to_wait_does_not_make_up_for_it(site: MergeSite) -> None:
    watch = Watch()
    pace = Pace(100, watch.wait, lambda: watch.now)
    pace(100)
    watch.now += 50
    pace(200)
    assert watch.now == 53


def test_a_scrub_goes_round_again_and_again_until_it_is_stopped(site: MergeSite, table: Table) -> None:
    watch = Watch(ends_after=FIRST_SECONDS + 2 * ROUND_SECONDS)
    file = files_in(site.warehouse, table.id, "runs")[0]

    def wait(seconds: float) -> bool:
        ended = watch.wait(seconds)
        if seconds == ROUND_SECONDS and not file.exists():
            assert len(damage_of(site.database, table)) == 1
            backup.rename(file)
        return ended

    backup = file.rename(file.with_suffix(".backup"))
    scrub(site.database, site.warehouse, 10**6, wait, lambda: watch.now)
    assert file.exists()
    assert damage_of(site.database, table) == []


def test_a_scrub_ends_in_the_middle_of_a_file_when_it_is_stopped(site: MergeSite, table: Table) -> None:
    watch = Watch(ends_after=5)
    with pytest.raises(Cancelled):
        list(verify(site.database, site.warehouse, Pace(1000, watch.wait, lambda: watch.now)))
    assert damage_of(site.database, table) == []
