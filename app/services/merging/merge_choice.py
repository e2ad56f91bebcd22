"""Which merges a worker begins next: the one place where that is decided (docs/decisions/0041).

Merges come in the order in which they are due: a merge is asked for when the oldest batch of its table has waited
``merge.max-staleness``, so that all tables are late by the same time when there is more to do than can be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.catalog.repository import WaitingMerge
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.options.entries import ChangelogProducer

ROUND_MERGES: Final = 200  # of one round: what fails in it is done again by itself
ROUND_RECORDS: Final = 20_000  # so that no table waits for long until the others of its round are folded
ROUND_BYTES: Final = 8 * 2**20  # of staging files
SMALL_RECORDS: Final = 1_000  # of a merge that shares a job


@dataclass(frozen=True)
class Choice:
    """What a worker begins now: small merges ``together``, in one job, and others ``apart``, each a job."""

    together: Sequence[WaitingMerge]
    apart: Sequence[WaitingMerge]


def choose(waiting: Sequence[WaitingMerge], places: int) -> Choice:
    """Return the merges to begin, of those that wait in the order in which they are due: the first small ones, as many
    as a round takes, and the first of the others for the free ``places``. Neither waits for the other.
    """
    together: list[WaitingMerge] = []
    apart: list[WaitingMerge] = []
    records = size = 0
    full = False
    for one in waiting:
        if not fits_a_round(one):
            apart.append(one)
            continue
        records, size = records + one.records, size + one.size_bytes
        # The first that has no room ends the round: a smaller one behind it was due later.
        full = full or (bool(together) and (records > ROUND_RECORDS or size > ROUND_BYTES))
        if not full and len(together) < ROUND_MERGES:
            together.append(one)
    return Choice(together, apart[: max(0, places)])


def fits_a_round(one: WaitingMerge) -> bool:
    """Return whether a merge may share its job: it is small, and one job is all that it needs. A changelog that is
    looked up needs another one, and so do totals that only the keys show.
    """
    schema = one.table.schema
    small = 0 < one.records <= SMALL_RECORDS and one.size_bytes <= ROUND_BYTES
    if not one.plain or not small or schema.parsed["changelog-producer"] is not ChangelogProducer.NONE:
        return False
    try:
        return all(bound.additive for bound in compile_plan(schema).totals)
    except Exception:  # its merge says what it is, and no other one waits for that
        return False
