"""What is kept of history, and which snapshots it is explained from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest

from app.core.table.history import Base, HistoryFile
from app.core.table.upkeep.kept_history import MOST_BASES, Kept, Retention, joined, kept_next

BEGUN = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
RETENTION = Retention(DAY, 1000)


def at(hours: float) -> datetime:
    return BEGUN + timedelta(hours=hours)


class History:
    """A table that merges so many bytes every hour, and is looked at after each."""

    def __init__(self, retention: Retention = RETENTION) -> None:
        self.retention = retention
        self.sizes: dict[int, int] = {}
        self.times: dict[int, datetime] = {0: BEGUN}
        self.kept = Kept()

    def merge(self, hours: float, size: int = 1, restored: tuple[int, ...] = ()) -> Kept:
        """A merge at that hour."""
        number = len(self.times)
        self.times[number], self.sizes[number] = at(hours), size
        return self.look(hours, restored)

    def look(self, hours: float, restored: tuple[int, ...] = ()) -> Kept:
        last = max(self.times)
        current = Base(last, self.times[last])
        again = [Base(number, self.times[number]) for number in restored]
        self.kept = kept_next(self.kept, current, BEGUN, at(hours), self.retention, self.size_after, again)
        return self.kept

    def size_after(self, snapshot: int) -> int:
        return sum(size for number, size in self.sizes.items() if number > snapshot)


def test_all_of_a_young_table_is_kept_and_begins_with_nothing() -> None:
    history = History()
    for hour in range(1, 12):
        assert history.merge(hour) == Kept()


def test_the_whole_window_can_be_explained_from_few_snapshots_and_little_more_is_kept() -> None:
    history = History()
    for hour in range(1, 200):
        kept = history.merge(hour)
        assert len(kept.bases) <= MOST_BASES
        assert kept.since == (kept.bases[0].snapshot_id if kept.since else 0)
        assert history.times[kept.since] <= max(BEGUN, at(hour) - DAY)
        assert history.times[kept.since] >= at(hour) - 1.5 * DAY - timedelta(hours=1)


def test_what_was_merged_once_is_explained_from_before_it_for_as_long_as_it_is_kept() -> None:
    history = History()
    history.merge(1)
    for hour in (20, 30, 40, 200):
        kept = history.look(hour)
    assert kept == Kept(1, (Base(1, at(1)),))


def test_the_oldest_goes_first_where_there_is_more_than_may_be_kept() -> None:
    history = History(Retention(DAY, 1000))
    for number in range(1, 300):
        kept = history.merge(number / 1000, size=10)
        assert history.size_after(kept.since) <= 1000
        assert len(kept.bases) <= MOST_BASES
        if number > 100:
            assert history.size_after(kept.since) >= 400


def test_what_is_larger_than_all_that_may_be_kept_is_not_kept() -> None:
    history = History()
    kept = history.merge(1, size=1001)
    assert (kept.since, [base.snapshot_id for base in kept.bases]) == (1, [1])
    assert history.merge(2, size=10).since == 1


def test_nothing_is_kept_where_no_time_is_and_no_snapshot_for_it() -> None:
    history = History(Retention(timedelta(0), 1000))
    for hour in range(1, 50):
        assert history.merge(hour) == Kept(hour)


def test_history_that_is_turned_on_begins_with_what_is_there() -> None:
    history = History(Retention(timedelta(0), 1000))
    history.merge(1)
    history.merge(2)
    history.retention = RETENTION
    kept = history.merge(3)
    assert kept == Kept(3, (Base(3, at(3)),))
    assert history.merge(4) == kept


def test_a_rollback_to_what_is_not_kept_any_more_is_a_snapshot_to_explain_from_for_as_long_as_it_is_kept() -> None:
    history = History()
    for hour in range(1, 60):
        kept = history.merge(hour)
    back = len(history.times)
    for hour in range(60, 120):
        kept = history.merge(hour, restored=(back,))
        reported = [base.snapshot_id for base in kept.bases]
        assert (back in reported) == (back >= kept.since)
        assert len(reported) <= MOST_BASES + 1
    assert kept.since > back


@pytest.mark.parametrize("steps", [{1: 400, 2: 400, 3: 400}, {1: 10, 2: 2000, 3: 10, 4: 600, 5: 600}])
def test_what_is_kept_never_grows_backward(steps: Mapping[int, int]) -> None:
    history = History()
    begins = [history.merge(hour * 10, size).since for hour, size in steps.items()]
    assert begins == list(accumulate(begins, max))


def test_files_are_joined_while_they_are_small_in_memory_too() -> None:
    files = [HistoryFile(str(number), 0, number, number, 10, 100) for number in range(1, 7)]
    asked: list[str] = []

    def unpacked(file: HistoryFile) -> int:
        asked.append(file.name)
        return 1000

    def names(most_bytes: int) -> list[list[str]]:
        return [[file.name for file in parts] for parts in joined(files, [3], unpacked, most_bytes)]

    assert names(10_000) == [["1", "2", "3"], ["4", "5", "6"]]
    assert names(2_999) == [["1", "2"], ["4", "5"]]
    assert names(1_999) == []
    asked.clear()
    assert list(joined([replace(file, size_bytes=2**24) for file in files], [], unpacked, 10_000)) == []
    assert asked == []  # no footer is read of what is too large as it is packed
