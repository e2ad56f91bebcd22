"""Which merges a worker begins, of those that wait: small ones together, others for their places, neither behind the
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from app.catalog.repository import WaitingMerge
from app.core.table.history import Table
from app.services.merging.merge_choice import ROUND_BYTES, ROUND_MERGES, ROUND_RECORDS, SMALL_RECORDS, choose
from tests.services.builders import SUM, schema

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def waiting(
    name: str, records: int = 1, *, options: Mapping[str, str] = SUM, size_bytes: int = 100, plain: bool = True
) -> WaitingMerge:
    table = Table(name, "shop", name, 0, schema(options=options), None, NOW, NOW)
    return WaitingMerge(name, table, records, size_bytes, plain)


def names(merges: Sequence[WaitingMerge]) -> list[str]:
    return [one.task_id for one in merges]


def test_small_merges_wait_for_no_place_and_large_ones_for_no_round() -> None:
    found = choose([waiting("a", 10**6), waiting("b"), waiting("c", 10**6), waiting("d")], 1)
    assert names(found.together) == ["b", "d"]
    assert names(found.apart) == ["a"]
    assert choose([waiting("a", 10**6), waiting("b")], 0).apart == []
    assert names(choose([waiting("a", 10**6), waiting("b")], 0).together) == ["b"]


def test_a_round_takes_those_that_are_due_first() -> None:
    many = [waiting(f"t{number}") for number in range(3 * ROUND_MERGES)]
    assert names(choose(many, 4).together) == [f"t{number}" for number in range(ROUND_MERGES)]
    assert choose(many, 4).apart == []


def test_a_round_ends_before_the_first_that_has_no_room() -> None:
    found = choose([waiting("a"), waiting("b", size_bytes=ROUND_BYTES), waiting("c")], 4)
    assert names(found.together) == ["a"]
    assert found.apart == []  # it is small, and the next round begins with it
    assert names(choose([waiting("b", size_bytes=ROUND_BYTES), waiting("c")], 4).together) == ["b"]
    many = [waiting(f"t{number}", SMALL_RECORDS) for number in range(ROUND_MERGES)]
    assert len(choose(many, 4).together) == ROUND_RECORDS // SMALL_RECORDS


@pytest.mark.parametrize(
    "one",
    [
        waiting("x", SMALL_RECORDS + 1),
        waiting("x", size_bytes=ROUND_BYTES + 1),
        waiting("x", 0),
        waiting("x", plain=False),
        waiting("x", options=SUM | {"changelog-producer": "lookup"}),
        waiting("x", options=SUM | {"changelog-producer": "input"}),
        waiting("x", options=SUM | {"fields.n.aggregate-function": "product"}),
        waiting("x", options={"merge-engine": "no engine"}),
    ],
)
def test_what_a_round_cannot_do_as_a_whole_is_done_apart(one: WaitingMerge) -> None:
    found = choose([one], 1)
    assert (names(found.together), names(found.apart)) == ([], ["x"])
