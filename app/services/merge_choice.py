"""Which merges a worker does next, and how: the one place where that is decided (docs/decisions/0041).

Merges come in the order in which they are due: a merge is asked for when the oldest batch of its table has waited
``merge.max-staleness``, so that all tables are late by the same time when there is more to do than can be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.catalog.repository import WaitingMerge
from app.core.errors import KeyfoldError
from app.core.plan.merge_plan import compile_plan
from app.core.table.option_entries import ChangelogProducer
from app.services.small_merges import MOST_BYTES, is_small

ROUND_MERGES = 32  # of one round: what fails in it is done again by itself
ROUND_RECORDS = 1_000  # so that no table waits for long until the others of its round are folded


@dataclass(frozen=True)
class Choice:
    """What a worker begins now: small merges ``together``, in a round of their own process, and others ``apart``, each
    in a place of its own.
    """

    together: Sequence[WaitingMerge]
    apart: Sequence[WaitingMerge]


def choose(waiting: Sequence[WaitingMerge], places: int, small_merge_records: int) -> Choice:
    """Of the merges that wait, in the order in which they are due: the first small ones, as many as a round takes, and
    the first of the others for the free ``places``. Neither waits for the other.
    """
    together: list[WaitingMerge] = []
    apart: list[WaitingMerge] = []
    records = size = 0
    full = False
    for one in waiting:
        if not fits_a_round(one, small_merge_records):
            apart.append(one)
            continue
        records, size = records + one.records, size + one.size_bytes
        # The first that has no room ends the round: a smaller one behind it was due later.
        full = full or (bool(together) and (records > ROUND_RECORDS or size > MOST_BYTES))
        if not full and len(together) < ROUND_MERGES:
            together.append(one)
    return Choice(together, apart[: max(0, places)])


def fits_a_round(one: WaitingMerge, small_merge_records: int) -> bool:
    """Whether the whole of a merge can be done by the worker alone: a changelog that is looked up, and totals that only
    the keys tell, need the executor.
    """
    schema = one.table.schema
    if not one.plain or not one.records or schema.parsed["changelog-producer"] is ChangelogProducer.LOOKUP:
        return False
    try:
        additive = all(bound.additive for bound in compile_plan(schema).totals)
        return additive and is_small(schema, one.records, one.size_bytes, small_merge_records)
    except KeyfoldError:  # its merge says so, and no other one
        return False
