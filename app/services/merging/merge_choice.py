"""The choice of the merges that a worker begins next (docs/decisions/0041).

Merges are begun in the order in which they became due: a merge is due when the oldest batch of its table has waited
``merge.max-staleness``. So under overload all tables are late by the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.catalog.repository import WaitingMerge
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.options.entries import ChangelogProducer

# A round has at most this many merges; those that fail in it are retried alone.
ROUND_MERGES: Final = 200
ROUND_RECORDS: Final = 20_000  # so that no table waits for long until the others of its round are folded
# The staging files of a round have at most this size.
ROUND_BYTES: Final = 8 * 2**20
# A merge that shares a job has at most this many records.
SMALL_RECORDS: Final = 1_000


@dataclass(frozen=True)
class Choice:
    """The merges to begin now: small ones ``together``, in one job, and others ``apart``, each in its own job."""

    together: Sequence[WaitingMerge]
    apart: Sequence[WaitingMerge]


def choose(waiting: Sequence[WaitingMerge], places: int) -> Choice:
    """Return the merges to begin, of the pending ones in the order in which they are due: the first small ones, as
    many as a round takes, and the first of the others for the free ``places``. Neither kind waits for the other.
    """
    together: list[WaitingMerge] = []
    apart: list[WaitingMerge] = []
    records = size = 0
    full = False
    for waiting_merge in waiting:
        if not fits_a_round(waiting_merge):
            apart.append(waiting_merge)
            continue
        records, size = records + waiting_merge.records, size + waiting_merge.size_bytes
        # The first without room ends the round: smaller ones after it were due later.
        full = full or (bool(together) and (records > ROUND_RECORDS or size > ROUND_BYTES))
        if not full and len(together) < ROUND_MERGES:
            together.append(waiting_merge)
    return Choice(together, apart[: max(0, places)])


def fits_a_round(waiting_merge: WaitingMerge) -> bool:
    """Return whether a merge may share its job: it is small, and one job is enough. A changelog by lookup needs a
    second job, and so do totals that must be checked key by key.
    """
    schema = waiting_merge.table.schema
    small = 0 < waiting_merge.records <= SMALL_RECORDS and waiting_merge.size_bytes <= ROUND_BYTES
    if not waiting_merge.plain or not small or schema.parsed["changelog-producer"] is not ChangelogProducer.NONE:
        return False
    try:
        return all(bound.additive for bound in compile_plan(schema).totals)
    except Exception:  # its merge says what it is, and no other one waits for that
        return False
