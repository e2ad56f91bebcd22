"""What explanations do not know: snapshots that have expired between those that are kept, and what is older than the
history.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.errors import ErrorCode, NotFound
from app.services.executor import MergeSite
from app.services.lookups import Images
from app.services.sweeps import expire_snapshots
from tests.services.builders import NO_HISTORY, QUIET, SUM, create_table
from tests.services.clocks import SetClock, clock, database
from tests.services.test_explain import explain, merge

__all__ = ["clock", "database"]

FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}


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
    expire_snapshots(site.database, clock() + timedelta(days=9))
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
    assert {moment: told for moment, told in answered.items() if not isinstance(told, str)} == known
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
