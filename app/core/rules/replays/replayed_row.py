"""One row, replayed from its log in Python: the state after its last removal, and the records since then.

Removals are searched one by one. The rules then fold the remaining records by column, all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol

from app.core.rules.log_records import LogRecords
from app.core.rules.order import Order
from app.core.rules.register import Register
from app.core.rules.row import LIVE_COLUMN, REMOVED_AT
from app.core.rules.rule import Rule, State
from app.core.table.records import ARRIVAL_COLUMN, Record, RowKind
from app.core.table.schema import Column

TOMBSTONE = "_kf_tombstone"
Base = Mapping[str, Any]


class ReplayRules(Protocol):
    """The part of ``Replay`` that a replayed row reads: the inner rules, and the order and names of the log."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of the row."""
        ...

    @property
    def rules(self) -> Sequence[Rule]:
        """The inner rules, which share the columns among them."""
        ...

    @property
    def order(self) -> Order:
        """The order of the log's entries."""
        ...

    @property
    def listed(self) -> Sequence[Register]:
        """The sequence groups whose accepted -D removes the row. If there are none, every -D does."""
        ...

    @property
    def logs_names(self) -> bool:
        """Whether an entry says which columns its record names."""
        ...

    @property
    def members(self) -> Mapping[str, str]:
        """The name of each column in a log entry, by column name."""
        ...


class ReplayedRow:
    """A row of which ``base`` (None: nothing) is the settled history and ``log`` the entries after it."""

    def __init__(self, rule: ReplayRules, base: Base | None, log: Sequence[Mapping[str, Any]]) -> None:
        self.rule = rule
        optional = rule.columns if rule.logs_names else ()
        self._records = LogRecords(_in_merge_order(rule, log), rule.order, rule.members, optional)
        self._kept = base or {}
        self._removal: int | None = None  # its place among the records
        self.removed_at: int | None = self._kept.get(REMOVED_AT)
        names = (f"{TOMBSTONE}{i}" for i in range(len(rule.listed)))
        self.tombstones: dict[int, Mapping[str, Any]] = {
            i: self._kept[name] for i, name in enumerate(names) if self._kept.get(name) is not None
        }
        self._remove()

    def _remove(self) -> None:
        """Find the last -D that removes the row, and the sequences that it leaves to the groups (tombstones)."""
        deletes = [place for place, kind in enumerate(self._records.kinds) if kind == RowKind.DELETE]
        if not self.rule.listed:
            self._removed(deletes[-1], ()) if deletes else None
            return
        highs = [self._high(register) for register in self.rule.listed] if deletes else []
        begun = 0  # the first record that ``highs`` does not count yet
        for place in deletes:
            highs = [_highest(high, ranks[begun:place]) for high, ranks in zip(highs, self._group_ranks, strict=True)]
            placed = [ranks[place] for ranks in self._group_ranks]
            accepting = [
                i for i, rank in enumerate(placed) if rank is not None and (highs[i] is None or rank >= highs[i])
            ]
            begun = place + 1 if accepting else place  # a -D that removes nothing is a record like others
            if accepting:
                highs = [rank if i in accepting else None for i, rank in enumerate(placed)]
                self._removed(place, accepting)

    def _removed(self, place: int, accepting: Sequence[int]) -> None:
        entry = self._records.entries[place]
        self._removal, self._kept = place, {}
        self.removed_at = entry[ARRIVAL_COLUMN]
        groups = {i: self.rule.listed[i].part.group for i in accepting}
        self.tombstones = {
            i: {f"g{n}": entry.get(self.rule.members[name]) for n, name in enumerate(group)}
            for i, group in groups.items()
        }

    @cached_property
    def _group_ranks(self) -> list[list[Any]]:
        """Per listed group the sort key of each record's sequence; None if the record does not touch the group."""
        return [self._ranks(register) for register in self.rule.listed]

    def _ranks(self, register: Register) -> list[Any]:
        columns = [self._records.column(name) for name in register.part.group]
        ranks: list[Any] = [None] * len(self._records)
        for place in register.part.places(self._records):
            ranks[place] = _rank(register, [values[place] for values in columns])
        return ranks

    def _high(self, register: Register) -> Any:
        """Return the sort key of the group's sequence in the base; None if it has none."""
        names = register.part.group
        return _rank(register, [self._kept.get(self.rule.members[name]) for name in names])

    @cached_property
    def _left(self) -> LogRecords:
        """The records after the last removal."""
        return self._records if self._removal is None else self._records.since(self._removal + 1)

    @cached_property
    def _stale(self) -> dict[tuple[str, ...], set[int]]:
        """Per group with a tombstone the places in ``_left`` of the records that are older than it."""
        begun = 0 if self._removal is None else self._removal + 1
        stale = {}
        for i, tombstone in self.tombstones.items():
            register = self.rule.listed[i]
            removed = _tombstone_rank(register, tombstone)
            ranks = self._group_ranks[i][begun:]
            stale[register.part.group] = {p for p, rank in enumerate(ranks) if rank is not None and rank < removed}
        return stale

    @cached_property
    def live(self) -> bool:
        """Whether the row exists."""
        closed = set().union(*self._stale.values())
        added = any(not kind & 1 and place not in closed for place, kind in enumerate(self._left.kinds))
        return added or bool(self._kept.get(LIVE_COLUMN))

    @cached_property
    def state(self) -> State:
        """The states of the inner rules, all records folded."""
        return {name: value for rule in self.rule.rules for name, value in self._folded(rule).items()}

    def _folded(self, rule: Rule) -> State:
        folded, before = rule.fold_log(self.folded_by(rule)), self.before(rule)
        return folded if before is None else rule.combine(before, folded)

    def folded_by(self, rule: Rule) -> LogRecords:
        """Return the records that ``rule`` folds, in merge order: those since the last removal that are not stale."""
        stale = self._stale.get(rule.part.group)
        places = range(len(self._left))
        return self._left.at([place for place in places if place not in stale]) if stale else self._left

    def without_removed(self, log: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the entries of ``log`` that the state still needs: the last -D, and those that sort after it."""
        if not self._removal:
            return log
        kept = {entry[ARRIVAL_COLUMN] for entry in self._records.since(self._removal).entries}
        return [entry for entry in log if entry[ARRIVAL_COLUMN] in kept]

    def holds(self, arrival: int) -> bool:
        """Return whether the record with this arrival sorts after the last removal."""
        return any(entry[ARRIVAL_COLUMN] == arrival for entry in self._left.entries)

    def begins_with_removal(self, rule: Rule) -> bool | None:
        """Return whether the state in ``before(rule)`` was left by a -D of the log, not by the base; None if there is
        no such state.
        """
        if self.before(rule) is None:
            return None
        return self._removal is not None

    def before(self, rule: Rule) -> State | None:
        """Return the state of ``rule`` before its first record since the last removal; None if it has none."""
        if self._removal is not None:
            accepted = any(self.rule.listed[i] is rule for i in self.tombstones)
            return rule.lift(self._records.record(self._removal)) if accepted else None
        if not self._kept:
            return None
        stored = {column.name: self._kept.get(self.rule.members[column.name]) for column in rule.columns}
        return stored | {hidden.name: self._kept.get(hidden.name) for hidden in rule.hidden}

    @property
    def base(self) -> Base:
        """The base that replaces the whole log once no older record can come."""
        values = {self.rule.members.get(name, name): value for name, value in self.state.items()}
        tombstones = {f"{TOMBSTONE}{i}": self.tombstones.get(i) for i in range(len(self.rule.listed))}
        return {**values, LIVE_COLUMN: self.live, REMOVED_AT: self.removed_at, **tombstones}

    def closed_to(self, record: Record) -> set[tuple[str, ...]]:
        """Return the groups that ignore ``record`` because their tombstone is newer."""
        closed = set()
        for i, tombstone in self.tombstones.items():
            register = self.rule.listed[i]
            rank = _rank(register, [record.values[name] for name in register.part.group])
            if register.part.takes(record) and rank < _tombstone_rank(register, tombstone):
                closed.add(register.part.group)
        return closed


def _highest(high: Any, ranks: Sequence[Any]) -> Any:
    """Return the highest of ``high`` and ``ranks``, ignoring None; None if all are None."""
    return max((rank for rank in (high, *ranks) if rank is not None), default=None)


def _in_merge_order(rule: ReplayRules, log: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    by_arrival = sorted(log, key=itemgetter(ARRIVAL_COLUMN))
    if rule.order.by_arrival:
        return by_arrival
    ranks = LogRecords(by_arrival, Order(), rule.members).ranks(rule.order, range(len(by_arrival)))
    assert ranks is not None, "arrival does not decide alone"
    return [by_arrival[place] for place in sorted(range(len(by_arrival)), key=ranks.__getitem__)]


def _rank(register: Register, values: Sequence[Any]) -> Any:
    """Return the sort key of the values of a group's ordering fields; None if all are null."""
    if len(values) == 1:  # the usual case
        return None if values[0] is None else register.order.fields[0].column.type.entry.rank(values[0])
    fields = register.order.fields[: len(values)]
    return None if all(v is None for v in values) else tuple(f.rank(v) for f, v in zip(fields, values, strict=True))


def _tombstone_rank(register: Register, tombstone: Mapping[str, Any]) -> Any:
    return _rank(register, [tombstone[f"g{place}"] for place in range(len(register.part.group))])
