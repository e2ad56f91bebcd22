"""Lanes: the orders in which a table's records can come late, one for each sequence group and one for the table's own
sequence, and what a late record still does to the columns of its lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.lateness import Horizon, Lateness
from app.core.rules.order import Order
from app.core.rules.participation import EVERY_RECORD, Adds, Participation
from app.core.rules.register import OrderPlace, Register
from app.core.rules.rule import Rule
from app.core.types.kinds import Family

SECONDS, NUMBER = "seconds", "number"
_MEASURES = {
    **dict.fromkeys((Family.TIMESTAMP, Family.DATE, Family.TIME), SECONDS),
    **dict.fromkeys((Family.INTEGER, Family.DECIMAL, Family.FLOATING), NUMBER),
}


@dataclass(frozen=True)
class Lane:
    """An order, and the records that take ``part`` in it. A record is late that sorts before one of its key that came
    before it.

    ``sequence`` are the fields that name the lane, ``columns`` what it orders. ``leading`` are the registers that keep
    the highest place of a key: one that a late record cannot change, or those of the single fields; none where groups
    order the fields. ``kept`` are registers of another order, which it may still reach. ``counted`` are the rules that
    take its value all the same. Both are None in tables whose rows can be removed: there only a replay says what a late
    record does.
    """

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    order: Order
    part: Participation
    leading: tuple[Register, ...]
    kept: tuple[Register, ...] | None
    counted: tuple[Rule, ...] | None
    horizon: Horizon | None = None

    @property
    def measure(self) -> str | None:
        """The unit of lateness along the first field: ``SECONDS`` or ``NUMBER``; None if it cannot be measured."""
        return _MEASURES.get(self.order.fields[0].column.type.family)

    @property
    def bound(self) -> float | None:
        """The horizon in the unit of ``measure``; None without one."""
        if self.horizon is None:
            return None
        return self.horizon.total_seconds() if isinstance(self.horizon, timedelta) else float(self.horizon)

    @property
    def places(self) -> Sequence[Sequence[OrderPlace]]:
        """Where runs have places of a key's records in the order; the highest of them is the highest that the key has
        had. Fields that are kept one by one may be those of several records, so each register says where it was set.
        """
        if not self.leading:
            return [[(field, field.column.name, None) for field in self.order.fields]]
        return [register.order_places for register in self.leading]


def lanes_of(plan: MergePlan) -> Sequence[Lane]:
    """Return the lanes of a table: none if arrival alone orders its records."""
    lanes = [
        _lane(plan, group, register, [rule for rule in plan.column_rules if rule.part.group == group])
        for group, register in plan.group_registers.items()
    ]
    free = [rule for rule in plan.column_rules if not rule.part.group]
    registers = [rule for rule in free if isinstance(rule, Register) and rule.order.fields]
    if plan.order.fields and registers:
        closed = next((register for register in registers if register.part == EVERY_RECORD), None)
        lanes.append(_lane(plan, tuple(field.column.name for field in plan.order.fields), closed, free))
    return lanes


def _lane(plan: MergePlan, sequence: tuple[str, ...], closed: Register | None, rules: Sequence[Rule]) -> Lane:
    order = closed.order if closed else plan.order
    horizon = plan.schema.parsed["sequence.late-horizon"]
    measured = horizon is not None and Lateness.measures(order.fields[0].column.type, horizon)
    known = plan.replay is None and not plan.row.removes_on_delete
    others = [rule for rule in rules if rule is not closed]
    # Where no rule takes a retract, older rows say nothing of it: it would come before those of its merge alone.
    adds_only = known and all(rule.part.adds_only for rule in rules)
    return Lane(
        sequence,
        tuple(column.name for rule in rules for column in rule.columns if column.name not in sequence),
        order,
        closed.part if closed else Participation((Adds(),)) if adds_only else EVERY_RECORD,
        (closed,) if closed else _of_fields(order, rules),
        tuple(rule for rule in others if isinstance(rule, Register)) if known else None,
        tuple(rule for rule in others if not isinstance(rule, Register)) if known else None,
        horizon if measured else None,
    )


def _of_fields(order: Order, rules: Sequence[Rule]) -> tuple[Register, ...]:
    """Return the registers of the fields of ``order``; none if another rule has one of them."""
    names = [field.column.name for field in order.fields]
    registers = {column.name: rule for rule in rules if isinstance(rule, Register) for column in rule.columns}
    return tuple(registers[name] for name in names) if registers.keys() >= set(names) else ()
