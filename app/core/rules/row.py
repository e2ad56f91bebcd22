"""The rule of the row: when a state row is a visible row, what a -D removes, how long a hidden row is remembered
(docs/semantics.md, Q2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import cached_property
from typing import Any

from app.core.rules.rule import BOOLEAN, HiddenColumn, State
from app.core.table.records import Record, RowKind
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind

LIVE_COLUMN = "_kf_live"
RESET_COLUMN = "_kf_reset"
TOUCHED_COLUMN = "_kf_touched"
REMOVED_AT = "_kf_removed_at"


class Liveness(Enum):
    """When a state row is a visible row."""

    ALWAYS = "always"  # no record that could hide it is ever accepted
    KIND = "kind"  # as the rule of its columns says: iff its latest record is an add, or what its log comes to
    ADD = "add"  # iff an add was folded since the row was last removed


@dataclass(frozen=True)
class RowRule:
    """The rule of a row as a whole: when it is live, and how long a hidden row is kept.

    With ``removes_on_delete`` a -D removes the records that arrived before it. With ``forgets_hidden`` a compaction
    drops hidden rows of the oldest run: no late record could sort before their removal. ``retained`` is how long any
    other hidden row is kept, None forever. Each state row then has the time of the last merge that touched it (epoch
    seconds).
    """

    liveness: Liveness
    removes_on_delete: bool = False
    forgets_hidden: bool = False
    retained: timedelta | None = None

    def goes_on_as(self, later: RowRule) -> bool:
        """Return whether stored state means the same under ``later``; how long it is remembered does not count.

        Rows of a table that took no retracts were all shown by adds.
        """
        alike = self.liveness is later.liveness or self.shown_by_adds(later)
        return alike and self.removes_on_delete == later.removes_on_delete

    def shown_by_adds(self, later: RowRule) -> bool:
        """Return whether every stored row is live under ``later``, which keeps that in a hidden column."""
        return self.liveness is Liveness.ALWAYS and later.liveness is Liveness.ADD

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        """The state columns of the row itself; where the liveness is ``KIND``, its columns' rule has ``_kf_live``."""
        hidden_columns = [HiddenColumn(LIVE_COLUMN, BOOLEAN)] if self.liveness is Liveness.ADD else []
        hidden_columns += [HiddenColumn(RESET_COLUMN, BOOLEAN)] if self.removes_on_delete else []
        hidden_columns += [HiddenColumn(TOUCHED_COLUMN, DataType(Kind.BIGINT))] if self.retained is not None else []
        return tuple(hidden_columns)

    def removes(self, record: Record) -> bool:
        """Return whether nothing is left of the row but that it was removed: neither what came before, nor what is
        said.
        """
        return self.removes_on_delete and record.kind is RowKind.DELETE

    def lift(self, record: Record, touched: int | None = None) -> State:
        """Return the row's own columns of one record; ``touched`` is when a merge folds it, None if there is none
        stored.
        """
        state: State = {}
        if self.liveness is Liveness.ADD:
            state[LIVE_COLUMN] = record.kind.add
        if self.removes_on_delete:
            state[RESET_COLUMN] = self.removes(record)
        return state | self.touched(touched)

    def touched(self, time: int | None) -> State:
        """Return the time of the last merge that touched a row, where the row knows it."""
        return {} if self.retained is None else {TOUCHED_COLUMN: time}

    def ends(self, newer: Mapping[str, Any]) -> bool:
        """Return whether the state ``newer`` leaves nothing of the columns of an older one."""
        return self.removes_on_delete and bool(newer[RESET_COLUMN])

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        """Return the row's hidden columns, combined from both; all records of ``newer`` arrived after ``older``'s.

        The later time wins. If either is unknown the result is unknown, and the next compaction sets its own.
        """
        state: State = {}
        if self.liveness is Liveness.ADD:
            state[LIVE_COLUMN] = newer[LIVE_COLUMN] or (older[LIVE_COLUMN] and not self.ends(newer))
        if self.removes_on_delete:
            state[RESET_COLUMN] = older[RESET_COLUMN] or newer[RESET_COLUMN]
        if self.retained is not None:
            times: list[Any] = [side.get(TOUCHED_COLUMN) for side in (older, newer)]  # runs of 0.1.0 may lack it
            state[TOUCHED_COLUMN] = None if None in times else max(times)
        return state

    def is_live(self, state: Mapping[str, Any]) -> bool:
        """Return whether the state row is a visible row."""
        return self.liveness is Liveness.ALWAYS or bool(state[LIVE_COLUMN])

    def aged(self, state: Mapping[str, Any], now: int) -> State:
        """Return the columns to replace in a state row that a compaction at ``now`` (epoch seconds) stores: from then
        on the row has a time.
        """
        unknown = self.retained is not None and state.get(TOUCHED_COLUMN) is None
        return {TOUCHED_COLUMN: now} if unknown else {}

    def stays(self, state: Mapping[str, Any], now: int) -> bool:
        """Return whether the oldest run still holds an ``aged`` state row after a compaction at ``now`` (Q2).

        Where late records could meet a hidden row, it goes once its last record is older than ``retained``.
        """
        if self.is_live(state):
            return True
        if self.retained is not None:
            return bool(state[TOUCHED_COLUMN] > self._forgotten_until(self.retained, now))
        return not self.forgets_hidden

    @staticmethod
    def _forgotten_until(retained: timedelta, now: int) -> int:
        """Return the time up to which hidden rows are forgotten at ``now``."""
        return now - math.ceil(retained.total_seconds())
