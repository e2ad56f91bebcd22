"""The aggregate functions: one entry each, with legal types, retract rule and meaning.

docs/semantics.md, Aggregate functions, is printed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import FaultCode
from app.core.functions import roaring, sketches
from app.core.functions.collections import collect, merge_map, merge_map_with_keytime
from app.core.functions.nested_tables import NestedKey, nested_partial_update, nested_update, nested_update_unkeyed
from app.core.functions.product import product, rounding
from app.core.functions.texts import listagg
from app.core.rules.accumulators import Sum, Union
from app.core.rules.order import Order, OrderField
from app.core.rules.participation import UNCHANGED, Group, Names, Participation, accumulated_records, kept_records
from app.core.rules.register import Pick, Register
from app.core.rules.rule import Rule
from app.core.rules.step_function import StepFunction
from app.core.rules.stepwise import Stepwise
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind


@dataclass(frozen=True)
class FunctionUse:
    """One use of a function: its column, the order of the records it sees, the group that lets them in.

    ``group``: its sequence group; ``names``: records say which columns they name. ``options`` are the function's own
    options of the column, parsed, by suffix (``list-agg-delimiter``). ``retracts``: the table takes -U or -D records
    that reach the function; ``table_retracts``: it takes any at all.
    """

    column: Column
    order: Order
    group: Group | None = None
    retracts: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    table_retracts: bool = True
    names: bool = False

    def kept(self, *, adds_only: bool, skip_null: bool) -> Participation:
        """Return the records that take part in a function that keeps one value; a column that is not named does not
        count as null.
        """
        named = Names((self.column,), UNCHANGED) if self.names and not skip_null else None
        valued = self.column if skip_null else None
        return kept_records(adds_only=adds_only, not_null=valued, group=self.group, named=named)

    def accumulated(self, *, adds_only: bool = True) -> Participation:
        """Return the records that take part in a function that accumulates values."""
        return accumulated_records(self.column, adds_only=adds_only, group=self.group)

    @property
    def by_value(self) -> Order:
        """The order of the column's own values."""
        return Order((OrderField(self.column),))


@dataclass(frozen=True)
class OptionFault:
    """A fault in an option of a column's function; ``suffix`` names the option."""

    suffix: str
    code: FaultCode
    message: str
    fix: str


@dataclass(frozen=True)
class AggregateFunction:
    """One function: the types it takes (``types`` decides, ``takes`` says it in words), whether it takes retracts.

    ``faults`` checks its own options on a column; ``rounds`` returns the property of a column's type that decides the
    value of a step, beyond its range. ``shown_as_stored``: the column of a compacted run has the visible value, so
    that other engines may read it (decision 31). ``samples`` are values for an example, as JSON, where the function
    does not take all values of the type.
    """

    name: str
    types: Callable[[DataType], bool]
    takes: str
    rule: Callable[[FunctionUse], Rule]
    retracts: bool
    meaning: str
    faults: Callable[[Column, Mapping[str, Any]], Iterator[OptionFault]] = lambda _column, _options: iter(())
    rounds: Callable[[DataType], tuple[Any, ...]] = lambda _type: ()
    shown_as_stored: bool = True
    samples: tuple[str, ...] = ()


def _any(_: DataType) -> bool:
    return True


def _numeric(data_type: DataType) -> bool:
    return data_type.numeric


def _comparable(data_type: DataType) -> bool:
    return data_type.comparable


def _boolean(data_type: DataType) -> bool:
    return data_type.kind is Kind.BOOLEAN


def _array(data_type: DataType) -> bool:
    return data_type.kind is Kind.ARRAY


def _array_of_rows(data_type: DataType) -> bool:
    return data_type.kind is Kind.ARRAY and data_type.element_type.kind is Kind.ROW


def _map(data_type: DataType) -> bool:
    return data_type.kind is Kind.MAP


def _map_of_rows(data_type: DataType) -> bool:
    return _map(data_type) and data_type.element_type.kind is Kind.ROW and len(data_type.element_type.fields) >= 2


def _string(data_type: DataType) -> bool:
    return data_type.kind is Kind.STRING


def _bytes(data_type: DataType) -> bool:
    return data_type.kind in (Kind.VARBINARY, Kind.BYTES)


def _sketch(
    join: Callable[[bytes, bytes], bytes],
    unreadable: Callable[[bytes], str | None],
    shown: Callable[[bytes], bytes] = lambda value: value,
) -> Callable[[FunctionUse], Rule]:
    """Return the rule of a union of sketches or bitmaps; a first value is kept as it came."""
    return lambda use: Union(use.column, join, use.accumulated(), shown=shown, unreadable=unreadable)


_THETA_COMPACT_FLAG = 0x08


def _theta_fault(value: bytes) -> str | None:
    """Return why ``value`` is no Theta sketch that Spark's unions take; None if it is one. They take compact ones."""
    fault = sketches.theta_fault(value)
    if fault is None and not value[5] & _THETA_COMPACT_FLAG:
        return "the Theta sketch is updatable; send it compact"
    return fault


def _logical(join: Callable[[bool, bool], bool]) -> Callable[[FunctionUse], Rule]:
    return lambda use: Union(use.column, join, use.accumulated())


def _stepwise(function: Callable[[FunctionUse], StepFunction]) -> Callable[[FunctionUse], Rule]:
    def build(use: FunctionUse) -> Rule:
        return Stepwise(use.column, function(use), use.order, use.accumulated(adds_only=not use.retracts))

    return build


def _nested_key(options: Mapping[str, Any]) -> NestedKey:
    return NestedKey(options["nested-key"], options["nested-key-null-strategy"], options["nested-sequence-field"])


def _nested_update(use: FunctionUse) -> StepFunction:
    limit = use.options["count-limit"]
    if not use.options["nested-key"]:
        return nested_update_unkeyed(use.column.type, limit, use.retracts)
    return nested_update(use.column.type, _nested_key(use.options), limit)


def _keytime_field(column: Column, options: Mapping[str, Any]) -> str:
    """Return the time of merge_map_with_keytime: ``ts-field``, by default the last field of the row."""
    return str(options["ts-field"] or column.type.element_type.fields[-1].name)


def _nested_faults(column: Column, options: Mapping[str, Any]) -> Iterator[OptionFault]:
    """Named fields exist; the strategy is known; what needs a nested key has one."""
    fields = {field.name: field.type for field in column.type.element_type.fields}
    known = f"fields: {', '.join(fields)}"
    for suffix in ("nested-key", "nested-sequence-field"):
        for name in options[suffix]:
            if name not in fields:
                yield OptionFault(
                    suffix, FaultCode.UNKNOWN_FIELD, f"the row of {column.name!r} has no field {name!r}", known
                )
            elif not fields[name].comparable:
                message = f"nested field {name!r} is {fields[name].base_sql}, which cannot be compared"
                yield OptionFault(suffix, FaultCode.ILLEGAL_ORDER_TYPE, message, "use a scalar field")
    if options["nested-key-null-strategy"] not in ("merge", "ignore", "error"):
        message = f"unknown strategy {options['nested-key-null-strategy']!r}"
        yield OptionFault(
            "nested-key-null-strategy", FaultCode.ILLEGAL_OPTION_VALUE, message, "write merge, ignore or error"
        )
    if not options["nested-key"]:
        for suffix in ("nested-sequence-field", "nested-key-null-strategy"):
            if suffix in options["given"]:
                message = f"{suffix} needs nested-key"
                yield OptionFault(suffix, FaultCode.MISSING_OPTION, message, f"set fields.{column.name}.nested-key")


def _nested_partial_faults(column: Column, options: Mapping[str, Any]) -> Iterator[OptionFault]:
    yield from _nested_faults(column, options)
    if not options["nested-key"]:
        fix = f"set fields.{column.name}.nested-key"
        yield OptionFault("nested-key", FaultCode.MISSING_OPTION, "nested_partial_update needs nested-key", fix)


def _keytime_faults(column: Column, options: Mapping[str, Any]) -> Iterator[OptionFault]:
    fields = {field.name: field.type for field in column.type.element_type.fields}
    name = _keytime_field(column, options)
    if name not in fields:
        message = f"the row of {column.name!r} has no field {name!r}"
        yield OptionFault("ts-field", FaultCode.UNKNOWN_FIELD, message, f"fields: {', '.join(fields)}")
    elif not fields[name].comparable:
        message = f"time field {name!r} is {fields[name].base_sql}, which has no order"
        yield OptionFault(
            "ts-field", FaultCode.ILLEGAL_ORDER_TYPE, message, "use a text, number, date or timestamp field"
        )


def _register(pick: Pick, skip_null: bool) -> Callable[[FunctionUse], Rule]:
    def build(use: FunctionUse) -> Rule:
        clears = pick is Pick.LATEST and use.retracts and use.table_retracts
        # Where no retract comes, every record takes part.
        part = use.kept(adds_only=use.table_retracts and not clears, skip_null=skip_null)
        return Register((use.column,), use.order, pick, part, clears)

    return build


def _extreme(pick: Pick) -> Callable[[FunctionUse], Rule]:
    """Max and min: the register of the column ordered by its own values."""
    return lambda use: Register((use.column,), use.by_value, pick, use.kept(adds_only=True, skip_null=True))


_ENTRIES = (
    AggregateFunction(
        "sum",
        _numeric,
        "a number",
        lambda use: Sum(use.column, use.accumulated(adds_only=not use.retracts)),
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
        Kind.BOOLEAN,
        _logical(lambda a, b: a and b),
        False,
        "true while every value is true",
    ),
    AggregateFunction(
        "bool_or",
        _boolean,
        Kind.BOOLEAN,
        _logical(lambda a, b: a or b),
        False,
        "true once any value is true",
    ),
    AggregateFunction(
        "product",
        _numeric,
        "a number",
        _stepwise(lambda use: product(use.column.type)),
        True,
        "the product of all values",
        rounds=rounding,
    ),
    AggregateFunction(
        "listagg",
        _string,
        Kind.STRING,
        _stepwise(lambda use: listagg(use.options["list-agg-delimiter"], use.options["distinct"])),
        False,
        "the texts joined",
    ),
    AggregateFunction(
        "collect",
        _array,
        Kind.ARRAY,
        _stepwise(lambda use: collect(use.column.type, use.options["distinct"], use.retracts)),
        True,
        "the elements of all arrays",
    ),
    AggregateFunction(
        "merge_map",
        _map,
        Kind.MAP,
        _stepwise(lambda use: merge_map(use.column.type)),
        True,
        "the entries of all maps, the latest value of each key",
    ),
    AggregateFunction(
        "merge_map_with_keytime",
        _map_of_rows,
        "MAP of a ROW with at least two fields",
        _stepwise(lambda use: merge_map_with_keytime(use.column.type, _keytime_field(use.column, use.options))),
        False,
        "the entries of all maps, the row with the latest time of each key",
        _keytime_faults,
    ),
    AggregateFunction(
        "nested_update",
        _array_of_rows,
        "ARRAY of ROW",
        _stepwise(_nested_update),
        True,
        "the rows of all arrays, the latest of each nested key",
        _nested_faults,
    ),
    AggregateFunction(
        "nested_partial_update",
        _array_of_rows,
        "ARRAY of ROW",
        _stepwise(lambda use: nested_partial_update(use.column.type, _nested_key(use.options))),
        False,
        "the rows of all arrays, the latest value of each field and nested key that is not null",
        _nested_partial_faults,
    ),
    AggregateFunction(
        "rbm32",
        _bytes,
        "VARBINARY or BYTES",
        _sketch(roaring.rbm32_union, roaring.rbm32_fault),
        False,
        "the union of 32-bit Roaring bitmaps",
        samples=("OjAAAAEAAAAAAAAAEAAAAAMA", "OjAAAAEAAAAAAAAAEAAAAAUA"),
    ),
    AggregateFunction(
        "rbm64",
        _bytes,
        "VARBINARY or BYTES",
        _sketch(roaring.rbm64_union, roaring.rbm64_fault),
        False,
        "the union of 64-bit Roaring bitmaps",
        samples=(
            "AQEAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAQAAAP4BAAAAAQIBAAAAAwABAAAAAAAAAAAAAAAAAAAA",
            "AQEAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAAQAAAP4BAAAAAQIBAAAABQABAAAAAAAAAAAAAAAAAAAA",
        ),
    ),
    AggregateFunction(
        "hll_sketch",
        _bytes,
        "VARBINARY or BYTES",
        _sketch(sketches.hll_union, sketches.hll_fault, sketches.hll_shown),
        False,
        "the union of DataSketches HLL sketches",
        shown_as_stored=False,  # a union of one sketch is shown as Paimon writes it
        samples=("AgEHBAMIAQB1gWYH", "AgEHBAMIAQB7ZeYI"),
    ),
    AggregateFunction(
        "theta_sketch",
        _bytes,
        "VARBINARY or BYTES",
        _sketch(sketches.theta_union, _theta_fault, sketches.theta_shown),
        False,
        "the union of DataSketches Theta sketches",
        shown_as_stored=False,  # the same
        samples=("AQMDAAAazJO6QLPB2gZpXQ==", "AQMDAAAazJO9MnNyRpHMFA=="),
    ),
)

FUNCTIONS: Mapping[str, AggregateFunction] = {entry.name: entry for entry in _ENTRIES}
ALIASES: Mapping[str, str] = {"first_not_null_value": "first_non_null_value"}


def find_function(name: str) -> AggregateFunction | None:
    """Return the function with this name or alias; None if there is none."""
    return FUNCTIONS.get(ALIASES.get(name, name))
