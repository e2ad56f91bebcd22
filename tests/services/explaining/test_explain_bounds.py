"""What explanations do not know: snapshots that have expired between those that are kept, what is older than the
history, and records for which there is no room; and what they do not keep from others: a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import product
from pathlib import Path

import pytest
from pyarrow import fs

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import ErrorCode, NotFound
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.files.layout import Warehouse
from app.services.explaining.history import KEY_ROOM, KeptFiles, file_history, kept_records
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from app.services.upkeep.sweeps import expire_snapshots
from app.storage.history.history import Cut, Room, write_history
from app.storage.staging.staging import write_batch
from tests.catalog.builders import CATALOGS
from tests.services.builders import NO_HISTORY, QUIET, SUM, back_to, create_table, merge_staged, post, schema
from tests.services.clocks import SetClock, clock, database
from tests.services.executor import PythonExecutor
from tests.services.explaining.test_explain import explain, merge
from tests.services.kept import kept_of
from tests.storage.staged import batch_in

__all__ = ["clock", "database"]

FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}


@pytest.mark.parametrize("catalog_kind", CATALOGS)
def test_a_time_whose_snapshot_expired_is_not_answered_with_an_older_one(
    site: MergeSite, images: Images, clock: SetClock
) -> None:
    table = create_table(site.database, QUIET | SUM | FEW)
    times = []
    for number in range(1, 7):
        merge(site, table, {"id": 1, "n": 1})
        times.append(clock())
        clock.move(minutes=10)
        if number in (2, 5):
            with site.database.transaction() as repository:
                repository.tags.create(table.id, f"tag-{number}", number, None)
    expire_snapshots(site.database, site.warehouse, clock() + timedelta(days=9))
    answered = {}
    for number, committed in enumerate(times, 1):
        for minutes in (0, 9):
            try:
                explained = explain(site, images, as_of=(committed + timedelta(minutes=minutes)).isoformat())
                answered[number, minutes] = explained.row and explained.row["n"]
            except NotFound as missing:
                answered[number, minutes] = f"{missing.code}: {missing.message}"
    # Snapshots 2, 5 and 6 are kept; of 2 nobody knows how long it was current.
    known = {(2, 0): 2, (5, 0): 5, (5, 9): 5, (6, 0): 6, (6, 9): 6}
    assert {moment: reported for moment, reported in answered.items() if not isinstance(reported, str)} == known
    between = str(answered[3, 0])
    assert between.startswith(ErrorCode.SNAPSHOT_NOT_FOUND)
    assert "snapshots 3 to 4 have expired" in between
    assert "asOf=2," in between
    assert "asOf=5," in between
    assert times[1].isoformat() in between
    assert times[4].isoformat() in between


def test_a_snapshot_older_than_the_history_is_one_state(site: MergeSite, images: Images) -> None:
    table = create_table(site.database, QUIET | SUM | NO_HISTORY)
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 10}, {"id": 1, "n": 100})
    explained = explain(site, images, as_of="2")
    assert (explained.row, explained.exact, explained.steps) == ({"id": 1, "n": 11}, True, [])
    assert (explained.start.snapshot, explained.start.row) == (2, {"id": 1, "n": 11})
    assert "older ones are not kept" in explained.start.words
    with pytest.raises(NotFound) as missing:
        explain(site, images, "2", as_of="2")
    assert missing.value.code is ErrorCode.ROW_NOT_FOUND


@dataclass(frozen=True)
class WatchedWarehouse(Warehouse):
    """Notes which files it is asked for, and whether ``is_open`` says that a transaction is open then."""

    is_open: Callable[[], bool] = bool
    asked: list[tuple[str, bool]] = field(default_factory=list, compare=False)

    def path(self, *segments: str) -> str:
        self.asked.append(("/".join(segments), self.is_open()))
        return super().path(*segments)

    def history_files(self) -> int:
        """How many history files were asked for since this was last called."""
        found = {path for path, _ in self.asked if "/history/" in path}
        self.asked.clear()
        return len(found)


class LikeAStore(Warehouse):
    """A folder of which several files are asked for at a time."""

    is_store = True

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        return fs.LocalFileSystem(), self.root


class WatchedDatabase(CatalogDatabase):
    """Counts the readers that are in a transaction; ``then`` is done once, after the next of them."""

    inside = 0
    then: Callable[[], None] | None = None

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        self.inside += 1
        try:
            with super().reading() as repository:
                yield repository
        finally:
            self.inside -= 1
        if self.then is not None:
            then, self.then = self.then, None
            then()


@pytest.fixture
def watched(catalog_url: str, tmp_path: Path) -> Iterator[tuple[MergeSite, WatchedDatabase, Images]]:
    """A site whose files and transactions are watched."""
    opened = WatchedDatabase(catalog_url)
    opened.migrate()
    warehouse = WatchedWarehouse(str(tmp_path / "warehouse"), is_open=lambda: opened.inside > 0)
    images = Images(tmp_path / "images", warehouse)
    yield MergeSite(opened, warehouse, PythonExecutor(), lease_seconds=600), opened, images
    images.close()
    opened.close()


def test_the_newest_records_of_a_key_are_read_as_many_as_there_is_room_for(site: MergeSite) -> None:
    table = create_table(site.database, QUIET | SUM)
    everything = []
    for number in range(1, 9):
        post(site.database, site.warehouse, *({"id": key, "n": 10 * number + n} for n in range(3) for key in (1, 2)))
        merge_staged(site.database, site.warehouse, table.id)
        everything += [(number, 10 * number + n) for n in range(3)]
        if number in (4, 6):
            file_history(site.database, site.warehouse, table, Cut(group_records=4))
    rooms = (1, 2, 3, 5, 6, 11, 12, 14, 15, 23, 24, 25)  # three records of the key are of each snapshot
    for room, until, warehouse in product(rooms, (8, 5), (site.warehouse, LikeAStore(site.warehouse.root))):
        found = kept_of(site.database, warehouse, table, 1, 0, Room(room, 2**20), until)
        reported = [(record.batch.snapshot_id, record.record.values["n"]) for record in found.records]
        assert reported == [(number, n) for number, n in everything if found.after < number <= until]
        assert found.after == max(0, until - room // 3)
    assert kept_of(site.database, site.warehouse, table, 1, 0, Room(99, 1)).records == []


def test_of_a_snapshot_whose_records_are_in_a_file_that_is_not_read_nothing_is_known(warehouse: Warehouse) -> None:
    of = schema()
    files, batches = [], {}
    for numbers in ((1, 2), (3, 4)):  # each pair is of the snapshots 1 and 2
        some = []
        for number in numbers:
            records = RecordDecoder(compile_plan(of)).decode([{"id": 1, "n": number}])
            name, _ = write_batch(warehouse, "t1", f"b{number}", of, records)
            some.append(replace(batch_in(warehouse, name, number), snapshot_id=2 - number % 2))
        files += [(file, of) for file in write_history(warehouse, "t1", some, of)]
        batches |= {batch.number: batch for batch in some}
    for room, after, reported in ((1, 2, []), (3, 1, [2, 4]), (4, 0, [1, 3, 2, 4])):
        found = kept_records(warehouse, KeptFiles("t1", 0, 2, files, []), (1,), lambda _: batches, Room(room, 2**20))
        assert (found.after, [record.record.values["n"] for record in found.records]) == (after, reported)


def test_what_there_is_no_room_for_is_not_read(watched: tuple[MergeSite, WatchedDatabase, Images]) -> None:
    site, database, _ = watched
    assert isinstance(site.warehouse, WatchedWarehouse)
    table = create_table(database, QUIET | SUM)
    for number in (1, 2, 3):
        for _ in range(4 - number):  # so that they are not joined
            post(database, site.warehouse, *({"id": 1, "n": n} for n in range(4 ** (4 - number))))
        merge_staged(database, site.warehouse, table.id)
        file_history(database, site.warehouse, table)
    site.warehouse.history_files()
    read = {}
    for room in (3, 30, 300):
        kept_of(database, site.warehouse, table, 1, 0, Room(room, 2**20))
        read[room] = site.warehouse.history_files()
    assert read == {3: 1, 30: 2, 300: 3}


def test_a_key_of_more_records_than_are_read_is_explained_from_a_later_snapshot(
    site: MergeSite, images: Images
) -> None:
    table = create_table(site.database, QUIET | SUM)
    many = KEY_ROOM.records * 6 // 10
    for _ in range(2):
        for _ in range(6):
            post(site.database, site.warehouse, *({"id": 1, "n": 1} for _ in range(many // 6)))
        merge_staged(site.database, site.warehouse, table.id)
    merge(site, table, {"id": 1, "n": 1})
    for _ in range(2):
        explained = explain(site, images)
        assert (explained.row, explained.exact) == ({"id": 1, "n": 2 * many + 1}, True)
        assert (explained.start.snapshot, explained.start.row) == (1, {"id": 1, "n": many})
        assert f"{KEY_ROOM.records} of a key" in explained.start.words
        assert explained.left_out + len(explained.steps) == many + 1
        assert explain(site, images, as_of="1").left_out + 50 == many
        file_history(site.database, site.warehouse, table)


def test_no_transaction_is_open_while_files_are_read(watched: tuple[MergeSite, WatchedDatabase, Images]) -> None:
    site, database, images = watched
    assert isinstance(site.warehouse, WatchedWarehouse)
    table = create_table(database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 10})
    file_history(database, site.warehouse, table)
    merge(site, table, {"id": 1, "n": 100})
    back_to(site, table, 2)
    merge(site, table, {"id": 1, "n": 1000})
    post(database, site.warehouse, {"id": 1, "n": 10000})
    for as_of, total in ((None, 11011), ("2", 11), ("5", 1011)):
        site.warehouse.asked.clear()
        explained = explain(site, images, as_of=as_of)
        assert (explained.row, explained.exact) == ({"id": 1, "n": total}, True)
        assert {path.split("/")[1] for path, _ in site.warehouse.asked} >= {"history", "runs"}
        assert [path for path, is_open in site.warehouse.asked if is_open] == []


def test_a_history_that_is_moved_while_it_is_read_is_read_again(
    watched: tuple[MergeSite, WatchedDatabase, Images],
) -> None:
    site, database, images = watched
    table = create_table(database, QUIET | SUM)
    merge(site, table, {"id": 1, "n": 1}, {"id": 1, "n": 10})

    def begins_anew() -> None:
        with database.transaction() as repository:
            repository.history.begin_after(table.id, 2, [2])

    database.then = begins_anew
    explained = explain(site, images)
    assert database.then is None
    assert (explained.row, explained.exact, explained.steps) == ({"id": 1, "n": 11}, True, [])
    assert explained.start.snapshot == 2
