"""The order in which records of one key are folded: sequence fields, their sort order, then arrival (merge-semantics
§3).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import total_ordering
from typing import Any

from app.core.rules.spark_sql import quote
from app.core.table.schema import Column

FLOATING = ("FLOAT", "DOUBLE")
TEXT = ("CHAR", "VARCHAR", "STRING")
BYTES = ("BINARY", "VARBINARY", "BYTES")
TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")


class Floor(StrEnum):
    """The unit to which ``sequence.auto-padding`` cuts a timestamp, so that arrival decides inside it (§3.4)."""

    SECOND = "SECOND"
    MILLISECOND = "MILLISECOND"


@total_ordering
class _Reversed:
    """A value that compares the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


def float_rank(value: float) -> int:
    """A number that sorts as IEEE 754's total order: -0.0 before 0.0, NaN last (§3.1)."""
    if value != value:
        return 2**64
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF) - 1


@dataclass(frozen=True)
class OrderField:
    """One field of an order. Null is smaller than any value in both directions (§3.1).

    ``integral`` reads the value as a whole number, as ``sequence.auto-padding`` does (§3.4, conversion L).
    """

    column: Column
    descending: bool = False
    floor: Floor | None = None
    integral: bool = False

    def rank(self, value: Any) -> tuple[Any, ...]:
        """The sort key of ``value`` in Python."""
        if value is None:
            return (0,)
        ranked = self._scalar(value)
        return (1, _Reversed(ranked) if self.descending else ranked)

    def _scalar(self, value: Any) -> Any:
        kind = self.column.type.kind
        if self.floor and isinstance(value, datetime):
            unit = 1_000_000 if self.floor is Floor.SECOND else 1_000
            return value.replace(microsecond=value.microsecond // unit * unit)
        if self.integral and kind in (*FLOATING, *TEXT, "DECIMAL"):
            return int(value) if kind in TEXT else int(Decimal(value))
        return float_rank(value) if kind in FLOATING else value

    def sql(self, value: str) -> list[str]:
        """Spark SQL expressions over the column reference ``value`` that, compared in turn, sort as ``rank`` does."""
        present = [f"{value} IS NOT NULL"]
        kind = self.column.type.kind
        if self.floor and kind in TIMESTAMPS:
            value = f"date_trunc('{self.floor}', {value})"
            if kind == "TIMESTAMP":
                value = f"CAST({value} AS TIMESTAMP_NTZ)"
        elif self.integral and kind in (*FLOATING, *TEXT, "DECIMAL"):
            return [
                *present,
                *self._directed(
                    "DECIMAL", f"CAST({value} AS DECIMAL(38,0))" if kind in TEXT else _truncated(kind, value)
                ),
            ]
        return self._directed(kind, value) if not self.descending else [*present, *self._directed(kind, value)]

    def _directed(self, kind: str, value: str) -> list[str]:
        if not self.descending:
            # Spark takes -0.0 and 0.0 for equal; the text tells them apart.
            return [value, f"NOT ({value} = 0 AND CAST({value} AS STRING) = '-0.0')"] if kind in FLOATING else [value]
        if kind in FLOATING:
            return [f"NOT isnan({value})", f"-{value}", f"{value} = 0 AND CAST({value} AS STRING) = '-0.0'"]
        return [_INVERTED.get(kind, _NEGATED).format(value)]


# Unary minus would round a DECIMAL to 34 digits.
_NEGATED = "(0 - {0})"
_INVERTED_BYTES = "concat(translate(hex({0}), '0123456789ABCDEF', 'FEDCBA9876543210'), 'G')"
_INVERTED: Mapping[str, str] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "TIME"), "~({0})"),
    "BOOLEAN": "NOT ({0})",
    "DATE": "~unix_date({0})",
    "TIMESTAMP": "~unix_micros(to_timestamp_ltz({0}))",
    "TIMESTAMP_LTZ": "~unix_micros({0})",
    # The complement of each hex digit turns the order round; 'G' puts a prefix after what it begins.
    **dict.fromkeys(TEXT, _INVERTED_BYTES.replace("{0}", "encode({0}, 'UTF-8')")),
    **dict.fromkeys(BYTES, _INVERTED_BYTES),
}


def _truncated(kind: str, value: str) -> str:
    """The value without its fraction."""
    cut = f"IF({value} < 0, ceil({value}), floor({value}))"
    if kind == "DECIMAL":
        return f"CAST({cut} AS DECIMAL(38,0))"
    # floor and ceil of a DOUBLE are BIGINT; from 2**53 on every DOUBLE is a whole number already.
    return f"IF(abs({value}) >= 9007199254740992D, CAST({value} AS DOUBLE), CAST({cut} AS DOUBLE))"


@dataclass(frozen=True)
class Order:
    """A tuple of order fields, optionally the row-kind flag (retract before add), and at last arrival (§1.2, §3.4)."""

    fields: tuple[OrderField, ...] = ()
    flag: bool = False

    @property
    def by_arrival(self) -> bool:
        """Whether arrival alone decides."""
        return not self.fields and not self.flag

    def then(self, later: Order) -> Order:
        """The same order, ties broken by ``later``."""
        return Order((*self.fields, *later.fields), later.flag)

    def rank(self, values: Mapping[str, Any], add: bool) -> tuple[Any, ...]:
        """The sort key in Python of a record (without arrival): ``values`` by column name."""
        ranks = tuple(field.rank(values[field.column.name]) for field in self.fields)
        return (*ranks, add) if self.flag else ranks

    def sql(self, reference: Mapping[str, str], add: str) -> list[str]:
        """Spark SQL expressions that sort as ``rank``; ``reference`` gives the SQL of each order column."""
        keys = [key for field in self.fields for key in field.sql(reference[field.column.name])]
        return [*keys, add] if self.flag else keys

    def record_sql(self, record: str) -> list[str]:
        """As ``sql``, for the record columns of the relation or struct ``record``, arrival included."""
        reference = {field.column.name: f"{record}.{quote(field.column.name)}" for field in self.fields}
        return [*self.sql(reference, f"({record}._kf_kind IN (0, 2))"), f"{record}._kf_arrival"]
