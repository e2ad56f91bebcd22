"""Plans under which one of a key's state rows wins whole, so that its answer is the answer: nothing is combined of
several rows (decision 17).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.core.rules.participation import EVERY_RECORD
from app.core.rules.register import Pick, Register
from app.core.rules.row import Liveness, RowRule
from app.core.rules.rule import Rule
from app.core.table.schema import Column
from app.core.types.values import Decode


@dataclass(frozen=True)
class Standing:
    """Where a state row stands among others of its key: the JSON array of the values of ``WholeRow.columns`` (empty
    without any), and whether its record adds.
    """

    values: bytes
    adds: bool


@dataclass(frozen=True)
class WholeRow:
    """The rule of such a plan: one register, which is all of the row."""

    rule: Register

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns whose values decide, in the order's order; none if arrival alone does."""
        return tuple(field.column for field in self.rule.order.fields)

    @property
    def latest(self) -> bool:
        """Whether the last one wins; else the first one."""
        return self.rule.pick is Pick.LATEST

    @cached_property
    def compares(self) -> bool:
        """Whether more than arrival decides."""
        return not self.rule.order.by_arrival

    def newer_wins(self, older: Standing, newer: Standing) -> bool:
        """Return the result of ``Register.newer_wins`` for two state rows of which only the standing is known."""
        if not self.compares:
            return self.latest
        later = bool(self._rank(newer) >= self._rank(older))
        return later if self.latest else not later

    def _rank(self, standing: Standing) -> tuple[Any, ...]:
        encoded = json.loads(standing.values) if self.columns else ()
        values = {name: decode(value) for (name, decode), value in zip(self._decoders, encoded, strict=True)}
        return self.rule.order.rank(values, standing.adds)

    @cached_property
    def _decoders(self) -> tuple[tuple[str, Decode], ...]:
        return tuple((column.name, column.type.with_nullable(True).decoder) for column in self.columns)


def whole_row(rules: Sequence[Rule], row: RowRule, value_columns: Sequence[Column]) -> WholeRow | None:
    """Return the rule of a plan if one state row wins whole; None if answers are made of several rows.

    What else a state row holds than the visible columns and whether it is live must then decide nothing.
    """
    if len(rules) != 1 or not isinstance(rules[0], Register):
        return None
    rule = rules[0]
    kind_known = rule.keeps_kind or (row.liveness is Liveness.ALWAYS and not rule.order.flag)
    every_column = set(rule.columns) == set(value_columns)
    whole = rule.part == EVERY_RECORD and every_column and kind_known and not row.removes_on_delete
    return WholeRow(rule) if whole else None
