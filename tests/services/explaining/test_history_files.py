"""History files: named in one transaction with what they have, found by token, read by their digests; whoever is
stopped anywhere loses and doubles nothing.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Unavailable
from app.core.table.history import HistoryFile, Table
from app.core.table.upkeep.damage import DamagedFile, FileKind
from app.files.layout import Warehouse
from app.services.explaining.history import file_history
from app.services.shared.damage import named_files
from app.services.shared.executor import MergeSite
from app.services.tables.tables import alter_table
from app.services.upkeep.scrubs import verify
from app.services.upkeep.sweeps import sweep
from app.storage.history.history import Cut
from tests.catalog.builders import CATALOGS
from tests.services.builders import QUIET, create_table, merge, post
from tests.services.damaged import damage_of, files_in, flip, flipped
from tests.services.explaining.test_history import CALM, age, begins, reported, swept
from tests.services.kept import kept_of
from tests.services.upkeep.test_swept import SleepyDatabase

ROOT = Path(__file__).resolve().parents[3]


def file(site: MergeSite, table: Table) -> list[HistoryFile]:
    """The history files of the table once all is filed that can be."""
    file_history(site.database, site.warehouse, table)
    return files(site, table)


def files(site: MergeSite, table: Table) -> list[HistoryFile]:
    with site.database.reading() as repository:
        return repository.history.files(table.id)


def on_disk(site: MergeSite, table: Table) -> set[str]:
    return {path.name for path in files_in(site.warehouse, table.id, "history")}


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_staging_files_go_once_their_records_are_in_a_history_file_and_old_enough(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 2, "n": 1})
    merge(site, table, {"id": 1, "n": 2})
    assert sweep(site.database, site.warehouse) == 0
    [one] = files(site, table)
    assert (one.first_snapshot, one.last_snapshot, one.records) == (1, 2, 3)
    assert len(files_in(site.warehouse, table.id, "staging")) == 2, "a reader may have begun before"
    age(site)
    assert sweep(site.database, site.warehouse) == 2
    assert files_in(site.warehouse, table.id, "staging") == []
    assert reported(site, table, 1) == [(1, 1, 1), (2, 2, 2)]


@pytest.mark.slow(reason="files many batches")
def test_small_files_become_larger_ones_and_few(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    for number in range(1, 33):
        merge(site, table, {"id": number % 3, "n": number})
        file(site, table)
    assert len(files(site, table)) <= 6
    assert [value for _, _, value in reported(site, table, 1)] == list(range(1, 33, 3))
    swept(site)
    assert on_disk(site, table) == {one.name for one in files(site, table)}


def test_each_record_is_found_among_many_keys_and_batches(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    drawn = random.Random(7)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for number in range(1, 6):
        records = [{"id": drawn.randrange(900), "n": number} for number in range(900)]
        merge(site, table, *records)
        for one in records:
            wanted.setdefault(one["id"], []).append((number, one["n"]))
        if number != 4:
            file_history(site.database, site.warehouse, table, Cut(group_records=100))
    for key in drawn.sample(sorted(wanted), 25):
        assert [(number, value) for number, _, value in reported(site, table, key)] == wanted[key]


def test_records_of_several_schemas_have_a_file_each_and_come_in_merge_order(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    post(site.database, site.warehouse, {"id": 1, "n": 2})
    add = {"action": "addColumn", "fieldNames": ["more"], "dataType": "STRING"}
    alter_table(site.database, ("shop", "wide"), [add])
    merge(site, table, {"id": 1, "n": 3, "more": "text"})
    assert len(file(site, table)) == 2
    found = kept_of(site.database, site.warehouse, table, 1).records
    assert [(one.batch.number, one.record.values) for one in found] == [
        (1, {"id": 1, "n": 1}),
        (2, {"id": 1, "n": 2}),
        (3, {"id": 1, "n": 3, "more": "text"}),
    ]
    assert [len(one.schema.columns) for one in found] == [2, 2, 3]


def test_words_that_tell_which_columns_a_record_names_are_kept(site: MergeSite) -> None:
    options = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
    table = create_table(site.database, options | QUIET)
    merge(site, table, {"id": 1})
    merge(site, table, {"id": 1, "n": None})
    for _ in range(2):
        found = kept_of(site.database, site.warehouse, table, 1).records
        assert [one.record.names("n") for one in found] == [False, True]
        file(site, table)


def test_large_batches_are_filed_in_pieces(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, *({"id": number, "n": number} for number in range(1000)))
    merge(site, table, *({"id": number, "n": number} for number in range(1000)))
    file_history(site.database, site.warehouse, table, Cut(most_bytes=20_000, whole_bytes=1000))
    assert len(on_disk(site, table)) == 2
    assert sum(one.records for one in files(site, table)) == 2000
    assert reported(site, table, 999) == [(1, 1, 999), (2, 2, 999)]


class StoppedError(BaseException):
    """Stands for a process that ends: nothing goes on after it, whatever it catches."""


class StoppingDatabase(CatalogDatabase):
    """Whose process ends at the end of its transaction number ``which``, before or after the commit."""

    def __init__(self, url: str, which: int, *, committed: bool) -> None:
        super().__init__(url)
        self._left, self._after_commit = which, committed

    @contextmanager
    def transaction(self, *, wakes: bool = True) -> Iterator[Repository]:
        self._left -= 1
        with super().transaction(wakes=wakes) as repository:
            yield repository
            if self._left == 0 and not self._after_commit:
                raise StoppedError
        if self._left == 0:
            raise StoppedError


@pytest.mark.slow(reason="stops a sweep at each of its steps")
@pytest.mark.parametrize("catalog_kind", CATALOGS)
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("which", range(1, 9))
def test_a_sweep_that_is_stopped_between_two_steps_loses_and_doubles_nothing(
    catalog_url: str, site: MergeSite, which: int, committed: bool
) -> None:
    table = create_table(site.database, CALM)
    for number in range(1, 4):
        merge(site, table, {"id": 1, "n": number})
        file_history(site.database, site.warehouse, table)
    merge(site, table, {"id": 1, "n": 4})
    age(site)
    stopping = StoppingDatabase(catalog_url, which, committed=committed)
    try:
        sweep(stopping, site.warehouse)
    except StoppedError:
        pass
    else:
        assert which > 4
    stopping.close()
    assert [value for _, _, value in reported(site, table, 1)] == [1, 2, 3, 4]
    swept(site)
    swept(site)
    assert [value for _, _, value in reported(site, table, 1)] == [1, 2, 3, 4]
    assert on_disk(site, table) == {one.name for one in files(site, table)}
    assert files_in(site.warehouse, table.id, "staging") == []


SWEEPS = """
import sys
from datetime import timedelta
from app.catalog.database import CatalogDatabase
from app.services.upkeep.sweeps import sweep
from app.files.layout import Warehouse
database, warehouse = CatalogDatabase(sys.argv[1]), Warehouse(sys.argv[2])
print("begins", flush=True)
while True:
    sweep(database, warehouse, timedelta(seconds=5))
"""


@pytest.mark.slow(reason="starts processes")
@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_processes_that_are_killed_while_they_sweep_lose_and_double_nothing(catalog_url: str, site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    drawn = random.Random(7)
    posted = 0
    for _ in range(4):
        command = [sys.executable, "-c", SWEEPS, catalog_url, site.warehouse.root]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as sweeping:
            sweeping.stdout.readline()
            for _ in range(drawn.randrange(3, 9)):
                posted += 1
                merge(site, table, {"id": 1, "n": posted})
                age(site, 60)
            sweeping.kill()
        assert [value for _, _, value in reported(site, table, 1)] == list(range(1, posted + 1))
    swept(site)
    swept(site)
    assert [value for _, _, value in reported(site, table, 1)] == list(range(1, posted + 1))
    assert on_disk(site, table) == {one.name for one in files(site, table)}
    assert files_in(site.warehouse, table.id, "staging") == []


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_two_sweeps_at_a_time_file_each_record_once(catalog_url: str, site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    other = SleepyDatabase(catalog_url, before=lambda: file(site, table))
    file_history(other, site.warehouse, table)
    other.close()
    assert reported(site, table, 1) == [(1, 1, 1)]
    assert len(files(site, table)) == 1
    assert len(on_disk(site, table)) == 2
    swept(site)
    assert on_disk(site, table) == {one.name for one in files(site, table)}


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_sweep_that_slept_names_no_file_that_another_one_has_removed(catalog_url: str, site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})

    [staged] = files_in(site.warehouse, table.id, "staging")
    sleepy = SleepyDatabase(catalog_url, before=lambda: [one.unlink() for one in files_in_history(site, table)])
    with pytest.raises(Unavailable, match="retried"):
        file_history(sleepy, site.warehouse, table)
    assert files(site, table) == []
    assert staged.exists()
    assert reported(site, table, 1) == [(1, 1, 1)]
    swept(site)
    assert reported(site, table, 1) == [(1, 1, 1)]
    sleepy.close()


def files_in_history(site: MergeSite, table: Table) -> list[Path]:
    return files_in(site.warehouse, table.id, "history")


def test_verify_reads_history_in_both_kinds_of_file(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    file(site, table)
    merge(site, table, {"id": 1, "n": 2})
    with site.database.reading() as repository:
        named = [one for one in named_files(repository, table.id) if one.kind is FileKind.HISTORY]
    assert [one.batch_number for one in named] == [2, None]
    assert all(one.digest for one in named)
    for path in (*files_in(site.warehouse, table.id, "history"), files_in(site.warehouse, table.id, "staging")[-1]):
        with flipped(path):
            damaged = [one.file.path for one in verify(site.database, site.warehouse) if one.damage]
            assert damaged == [f"{table.id}/{path.parent.name}/{path.name}"]
            assert [one.path for one in damage_of(site.database, table)] == damaged
        assert [one.damage for one in verify(site.database, site.warehouse) if one.damage] == []
        assert damage_of(site.database, table) == []


def test_damaged_history_is_named_and_never_told(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    file(site, table)
    [path] = files_in(site.warehouse, table.id, "history")
    with flipped(path), pytest.raises(DamagedFile, match="until history begins after it"):
        reported(site, table, 1)
    assert reported(site, table, 1) == [(1, 1, 1)]


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_history_begins_again_after_a_staging_file_that_is_damaged(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    merge(site, table, {"id": 1, "n": 2})
    flip(files_in(site.warehouse, table.id, "staging")[0])
    with pytest.raises(DamagedFile, match="explanations that need it"):
        reported(site, table, 1)
    assert file(site, table) == []
    assert (reported(site, table, 1), begins(site, table)) == ([], 2)
    merge(site, table, {"id": 1, "n": 3})
    swept(site)
    assert reported(site, table, 1) == [(3, 3, 3)]
    assert begins(site, table) == 2


def test_a_damaged_history_file_is_reported_and_keeps_no_other_record_from_being_filed(site: MergeSite) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    file(site, table)
    flip(files_in(site.warehouse, table.id, "history")[0])
    merge(site, table, {"id": 1, "n": 2})
    assert [one.records for one in file(site, table)] == [1, 1]
    assert [one.kind for one in damage_of(site.database, table)] == [FileKind.HISTORY]


def test_a_warehouse_that_is_away_costs_no_history(site: MergeSite, warehouse: Warehouse) -> None:
    table = create_table(site.database, CALM)
    merge(site, table, {"id": 1, "n": 1})
    marked = Warehouse(warehouse.root, marked=True)
    staged = Path(warehouse.path(table.id, "staging"))
    staged.rename(staged.with_name("away"))
    with pytest.raises(Unavailable):
        file_history(site.database, marked, table)
    staged.with_name("away").rename(staged)
    assert reported(site, table, 1) == [(1, 1, 1)]
