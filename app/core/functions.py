"""The aggregate functions: one entry each, with legal types, retract rule and both meanings (merge-semantics §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.core.accumulators import Sum, Union
from app.core.order import Order, OrderField
from app.core.rules import OnRetract, Pick, Register, Rule
from app.core.schema import Column
from app.core.types import DataType

NUMERIC = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True)
class FunctionUse:
    """One use of a function: its column, the order of the records it sees, the group that lets them in.

    ``options`` are the function's own options of the column, by suffix (``list-agg-delimiter``).
    """

    column: Column
    order: Order
    group: tuple[str, ...] = ()
    ignore_retract: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def cleared_by_retract(self) -> OnRetract:
        """What a retract does to a function that it sets to null."""
        return OnRetract.IGNORE if self.ignore_retract else OnRetract.CLEAR

    @property
    def by_value(self) -> Order:
        """The order of the column's own values."""
        return Order((OrderField(self.column),))


@dataclass(frozen=True)
class AggregateFunction:
    """One function: the types it takes (``types`` decides, ``takes`` says it in words), whether it takes retracts."""

    name: str
    types: Callable[[DataType], bool]
    takes: str
    rule: Callable[[FunctionUse], Rule]
    retracts: bool
    meaning: str


def _any(_: DataType) -> bool:
    return True


def _numeric(data_type: DataType) -> bool:
    return data_type.kind in NUMERIC


def _comparable(data_type: DataType) -> bool:
    return data_type.comparable


def _boolean(data_type: DataType) -> bool:
    return data_type.kind == "BOOLEAN"


def _register(pick: Pick, skip_null: bool) -> Callable[[FunctionUse], Rule]:
    def build(use: FunctionUse) -> Rule:
        on_retract = use.cleared_by_retract if pick is Pick.LATEST else OnRetract.IGNORE
        return Register((use.column,), use.order, pick, on_retract, skip_null, use.group)

    return build


def _extreme(pick: Pick) -> Callable[[FunctionUse], Rule]:
    """Max and min: the register of the column ordered by its own values."""
    return lambda use: Register((use.column,), use.by_value, pick, skip_null=True, group=use.group)


_ENTRIES = (
    AggregateFunction(
        "sum",
        _numeric,
        "a number",
        lambda use: Sum(use.column, use.group, use.ignore_retract),
        True,
        "the sum of all values",
    ),
    AggregateFunction("max", _comparable, "a type with an order", _extreme(Pick.LATEST), False, "the largest value"),
    AggregateFunction("min", _comparable, "a type with an order", _extreme(Pick.FIRST), False, "the smallest value"),
    AggregateFunction(
        "last_value", _any, "any type", _register(Pick.LATEST, False), True, "the latest value, null included"
    ),
    AggregateFunction(
        "last_non_null_value", _any, "any type", _register(Pick.LATEST, True), True, "the latest value that is not null"
    ),
    AggregateFunction(
        "first_value", _any, "any type", _register(Pick.FIRST, False), False, "the first value, null included"
    ),
    AggregateFunction(
        "first_non_null_value", _any, "any type", _register(Pick.FIRST, True), False, "the first value that is not null"
    ),
    AggregateFunction(
        "bool_and",
        _boolean,
        "BOOLEAN",
        lambda use: Union(use.column, lambda a, b: a and b, "bool_and({v})", "({a} AND {b})", use.group),
        False,
        "true while every value is true",
    ),
    AggregateFunction(
        "bool_or",
        _boolean,
        "BOOLEAN",
        lambda use: Union(use.column, lambda a, b: a or b, "bool_or({v})", "({a} OR {b})", use.group),
        False,
        "true once any value is true",
    ),
)

FUNCTIONS: Mapping[str, AggregateFunction] = {entry.name: entry for entry in _ENTRIES}
ALIASES: Mapping[str, str] = {"first_not_null_value": "first_non_null_value"}


def find_function(name: str) -> AggregateFunction | None:
    """The function called ``name``, also by an old name; None if there is none."""
    return FUNCTIONS.get(ALIASES.get(name, name))
