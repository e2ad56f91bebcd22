"""Which records each column's value came from: the one that a register keeps, all that an accumulator counted.

One entry per kind of rule, as reasons have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.accumulators import Sum, Union
from app.core.rules.named_values import NamedValues
from app.core.rules.register import Register
from app.core.rules.replays.replay import Replay
from app.core.rules.rule import Rule
from app.core.rules.stepwise import Stepwise
from app.core.table.records import Record
from app.core.table.schema import Column


@dataclass(frozen=True)
class Source:
    """Where a value came from: ``start``, the state before all records, and the ``arrivals`` of records, ascending."""

    start: bool = False
    arrivals: tuple[int, ...] = ()

    def joined(self, arrivals: Collection[int]) -> Source:
        """Return the same and more records."""
        return Source(self.start, tuple(sorted({*self.arrivals, *arrivals})))


NOTHING = Source()
START = Source(start=True)
Sources = Mapping[int, Source]  # by column id; columns of which nothing was said are absent
_Before = Mapping[str, Any] | None  # what a rule holds before the records, None if nothing
_Fold = Callable[[Any, Column, _Before, Sequence[Record], Source], Source]


def _kept(rule: Register, _column: Column, before: _Before, records: Sequence[Record], origin: Source) -> Source:
    """Return the sources of a column that shows the one record that wins over all others."""
    state, source = before, origin
    for record in records:
        lifted = rule.lift(record)
        if rule.part.takes(record) and (state is None or rule.newer_wins(state, lifted)):
            state, source = lifted, Source(arrivals=(record.arrival,))
    return source


def _named(rule: NamedValues, column: Column, _before: _Before, records: Sequence[Record], origin: Source) -> Source:
    naming = [record.arrival for record in records if rule.part_of(column).takes(record)]
    return Source(arrivals=(naming[-1],)) if naming else origin


def _counted(rule: Sum | Union, _column: Column, _before: _Before, records: Sequence[Record], origin: Source) -> Source:
    return origin.joined([record.arrival for record in records if rule.part.takes(record)])


def _stepped(rule: Stepwise, _column: Column, before: _Before, records: Sequence[Record], origin: Source) -> Source:
    taken = [record.arrival for record in records if rule.part.takes(record)]
    if rule.late is not None:
        folded = rule.combine_all([before or rule.empty, *map(rule.lift, records)])
        on_time = {entry["t"] for entry in folded[rule.log] or ()}
        taken = [arrival for arrival in taken if arrival in on_time]
    return origin.joined(taken)


FOLDS: Mapping[type[Rule], _Fold] = {
    Register: _kept,
    NamedValues: _named,
    Sum: _counted,
    Union: _counted,
    Stepwise: _stepped,
}


def sources_at_start(plan: MergePlan, state: Mapping[str, Any] | None) -> Sources:
    """Return the sources of a state row without known records."""
    if state is None:
        return {}
    named = {name for rule in plan.rules for name in rule.named_columns(state)}
    return {column.id: START for column in plan.schema.value_columns if column.name in named}


def sources(
    plan: MergePlan,
    before: Mapping[str, Any] | None,
    records: Sequence[Record],
    after: Mapping[str, Any] | None,
    origin: Sources,
    known: Collection[int],
) -> Sources:
    """Return the sources of the values of ``after``.

    ``after`` is the state row ``before`` (None: nothing) with ``records`` folded on top in turn. ``origin``
    has the sources of the values of ``before``. ``known`` are the arrivals of all records that can be named.
    """
    if after is None:
        return {}
    if plan.replay is not None:
        by_column = _of_replay(plan.replay, after, known, origin)
    else:
        by_column = _of_rules(plan, before, records, origin)
    return {number: source for number, source in by_column.items() if source != NOTHING}


def _of_rules(
    plan: MergePlan, before: Mapping[str, Any] | None, records: Sequence[Record], origin: Sources
) -> dict[int, Source]:
    removals = [place for place, record in enumerate(records) if plan.row.removes(record)]
    if removals:
        before, records, origin = None, records[removals[-1] + 1 :], {}
    return {
        column.id: FOLDS[type(rule)](rule, column, before, records, origin.get(column.id, NOTHING))
        for rule in plan.rules
        for column in rule.columns
    }


def _of_replay(replay: Replay, after: Mapping[str, Any], known: Collection[int], origin: Sources) -> dict[int, Source]:
    """Return the sources after a replay of the row; entries of its log that are not ``known`` records are from before
    them.
    """
    row = replay.row(after)
    by_column: dict[int, Source] = {}
    for rule in replay.rules:
        log, removal = row.folded_by(rule), row.begins_with_removal(rule)
        records = [log.record(place) for place in range(len(log))]
        begun = NOTHING if removal is None else Source(arrivals=(row.removed_at or 0,)) if removal else None
        for column in rule.columns:
            inherited = origin.get(column.id, NOTHING)
            source = FOLDS[type(rule)](rule, column, row.before(rule), records, inherited if begun is None else begun)
            older = [arrival for arrival in source.arrivals if arrival not in known]
            newer = [arrival for arrival in source.arrivals if arrival in known]
            before = inherited if older and (inherited != NOTHING) else START if older else Source(source.start)
            older_source = Source(source.start or before.start, before.arrivals)
            by_column[column.id] = older_source.joined(newer)
    return by_column
