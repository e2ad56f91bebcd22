"""A table is overdue when its oldest staged batch waits longer than it may, and the reason is the first that is so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.core.table.history import Table
from app.core.table.upkeep.overdue import EXPLAINED, OverdueReason, Wait, overdue
from tests.services.builders import schema

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = Table("t", "shop", "wide", 0, schema(options={"merge.max-staleness": "10 s"}), None, NOW, NOW)


def wait(seconds: float, **known: bool) -> Wait:
    return Wait(
        TABLE, NOW - timedelta(seconds=seconds), **{"fails": False, "merging": False, "forgetting": False} | known
    )


@pytest.mark.parametrize("seconds", [-3600, 0, 9, 10, 11])
def test_a_batch_may_wait_for_max_staleness_and_a_second(seconds: float) -> None:
    assert overdue(wait(seconds), NOW, spark_answers=True) is None


def test_what_waits_longer_is_overdue_by_what_is_beyond_max_staleness() -> None:
    found = overdue(wait(12), NOW, spark_answers=True)
    assert (found.by, found.reason) == (timedelta(seconds=2), OverdueReason.WAITING)


@pytest.mark.parametrize(
    ("known", "spark", "reason"),
    [
        ({"fails": True, "merging": True, "forgetting": True}, False, OverdueReason.FAILS),
        ({"merging": True, "forgetting": True}, False, OverdueReason.MERGING),
        ({"forgetting": True, "stopped": True}, False, OverdueReason.FORGETTING),
        ({"stopped": True}, False, OverdueReason.COMPACTION),
        ({}, False, OverdueReason.SPARK),
    ],
)
def test_the_first_reason_is_reported(known: dict[str, bool], spark: bool, reason: OverdueReason) -> None:
    found = overdue(wait(12, **known), NOW, spark_answers=spark)
    assert found.reason is reason


def test_every_reason_is_explained() -> None:
    assert EXPLAINED.keys() == set(OverdueReason)
