"""The compaction policy: what it picks, and what it promises of a long history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.core.table.compaction import CompactionPolicy, Stop, stop_trigger
from tests.services.builders import schema

PAIMON = CompactionPolicy(trigger=5, size_amplification_percent=200, size_ratio_percent=1)


@pytest.mark.parametrize(
    ("sizes", "picked"),
    [
        ([], 0),
        ([100], 0),
        ([100, 1, 1, 1], 0),  # fewer than the trigger
        ([100, 100, 100, 1, 1], 5),  # the newer ones are more than twice the oldest
        ([1000, 100, 10, 10, 10], 3),  # equal ones
        ([1000, 100, 20, 10, 10], 3),  # two tens together are as large as the next
        ([1000, 100, 21, 10, 10], 2),
        ([10000, 1000, 100, 10, 1], 0),  # each ten times the next, and no more than the trigger
        ([100000, 10000, 1000, 100, 10, 1], 2),  # one too many
    ],
)
def test_what_is_picked(sizes: list[int], picked: int) -> None:
    assert PAIMON.pick(sizes) == picked


def test_a_long_history_keeps_few_runs_and_writes_each_byte_a_few_times() -> None:
    sizes: list[int] = [10_000]
    most, written, merges = 0, 0, 500
    for _ in range(merges):
        sizes.append(10)
        written += 10
        while count := PAIMON.pick(sizes):
            combined = sum(sizes[-count:])
            written += combined
            sizes[-count:] = [combined]
        most = max(most, len(sizes))
    assert most <= PAIMON.trigger
    assert written / (10 * merges) < 14


def test_one_run_is_never_compacted_by_policy() -> None:
    assert CompactionPolicy(trigger=1, size_amplification_percent=0, size_ratio_percent=0).pick([5]) == 0


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({}, None),
        ({"num-sorted-run.compaction-trigger": "20"}, None),
        ({"num-sorted-run.stop-trigger": "6"}, 6),
        ({"num-sorted-run.stop-trigger": "2"}, 5),  # not before a compaction starts
    ],
)
def test_the_runs_at_which_merges_wait(options: dict[str, str], runs: int | None) -> None:
    assert stop_trigger(schema(options=options).parsed) == runs


@pytest.mark.parametrize(
    ("runs", "seconds", "holds"),
    [(3, 0, True), (4, 299, True), (2, 0, False), (3, 300, False), (3, -1, False)],
    ids=["as many", "more", "fewer", "long enough", "the clock was set back"],
)
def test_merges_wait_for_a_compaction_that_was_requested_a_moment_ago(runs: int, seconds: int, holds: bool) -> None:
    asked = datetime(2026, 1, 1, tzinfo=UTC)
    assert Stop("c", runs, 3, asked).holds(asked + timedelta(seconds=seconds)) is holds
