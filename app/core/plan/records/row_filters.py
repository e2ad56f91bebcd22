"""Filters of scans: conditions on visible columns, ``column.operator.value``, read like the values of records.

As in SQL, a null meets no condition but ``is.null``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.core.errors import FaultCode, Invalid, Violation
from app.core.hints import cut, nearest, some_of
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Family
from app.core.types.values import ValueFault

# Most values of one ``in``.
MOST_VALUES = 1000
MOST_CONDITIONS = 100
LONGEST_PATTERN = 1000  # characters; what it takes to match one grows with it


class Operator(StrEnum):
    """The comparison that a condition makes."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    IN = "in"  # a list in parentheses; elements with commas are in double quotes
    LIKE = "like"  # % any text, _ any character, a backslash takes the next one literally
    IS = "is"  # null or not_null


@dataclass(frozen=True)
class Condition:
    """``value`` is one of the column's type, a tuple of them for ``in``, a pattern for ``like``, and for ``is``
    whether null is asked for.
    """

    column: Column
    operator: Operator
    value: Any


def parse_filters(schema: TableSchema, texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return the conditions, all of which a row must meet. Raise ``Invalid`` with every fault."""
    if len(texts) > MOST_CONDITIONS:
        message = f"{len(texts)} filters are more than {MOST_CONDITIONS}"
        fault = Violation("/filter", FaultCode.OUT_OF_RANGE, message, "use in, or fewer of them")
        raise Invalid(message, violations=[fault])
    conditions: list[Condition] = []
    faults: list[Violation] = []
    for place, text in enumerate(texts):
        try:
            conditions.append(_condition(schema, text))
        except ValueFault as fault:
            faults.append(Violation(f"/filter/{place}", fault.code, f"filter {text[:100]!r}: {fault}", fault.fix))
    if faults:
        message = faults[0].message if len(faults) == 1 else f"{len(faults)} filters are not valid"
        raise Invalid(message, violations=faults)
    return tuple(conditions)


def _condition(schema: TableSchema, text: str) -> Condition:
    if "\x00" in text:
        raise ValueFault(FaultCode.ILLEGAL_TEXT, "it holds the character U+0000", "leave it out")
    column, operator, value = _split(schema, text)
    return Condition(column, operator, _READERS[operator](column.type, value))


def _split(schema: TableSchema, text: str) -> tuple[Column, Operator, str]:
    """Names may hold dots: the longest name of a column that an operator follows is the one."""
    starts = [column for column in schema.columns if text.startswith(f"{column.name}.")]
    for column in sorted(starts, key=lambda start: -len(start.name)):
        operator, dot, value = text[len(column.name) + 1 :].partition(".")
        if dot and operator in _WORDS:
            return column, Operator(operator), value
    if starts:
        first_word = text[len(starts[0].name) + 1 :].partition(".")[0]
        message = f"{first_word[:50]!r} is not an operator"
        raise ValueFault(FaultCode.ENUM, message, f"write column.operator.value, where operator is one of: {_LISTED}")
    if sign := _SIGN.search(text):
        name, value = text[: sign.start()].strip(), text[sign.end() :].strip()
        if name in schema.by_name:
            written = f"{name}.{_SIGNS[sign[0]]}.{value}"
            raise ValueFault(FaultCode.ENUM, f"{sign[0]} is not an operator", f"write {cut(written)}")
    first_word = text.partition(".")[0]
    near = nearest(first_word, schema.by_name)
    known = f"did you mean {near}?" if near else f"columns: {some_of(schema.by_name)}"
    raise ValueFault(FaultCode.UNKNOWN_COLUMN, f"the table has no column {first_word[:100]!r}", known)


_WORDS = frozenset(operator.value for operator in Operator)
_LISTED = ", ".join(operator.value for operator in Operator)
_SIGNS = {"=": "eq", "==": "eq", "!=": "ne", "<>": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_SIGN = re.compile("==?|!=|<>|<=|>=|<|>")


def _scalar(data_type: DataType, text: str) -> Any:
    if data_type.nested:
        message = f"values of {data_type.base_sql} cannot be compared"
        raise ValueFault(FaultCode.ILLEGAL_COLUMN_TYPE, message, "use is.null or is.not_null")
    return data_type.text_decoder(text)


def _ordered(data_type: DataType, text: str) -> Any:
    value = _scalar(data_type, text)
    if not data_type.comparable:
        message = f"values of {data_type.base_sql} have no order"
        raise ValueFault(FaultCode.ILLEGAL_COLUMN_TYPE, message, "use eq, ne, in or is")
    return value


def _list(data_type: DataType, text: str) -> tuple[Any, ...]:
    fix = "send in.(a,b,c); an element with a comma or a parenthesis is in double quotes"
    if not (text.startswith("(") and text.endswith(")") and len(text) > 2):
        raise ValueFault(FaultCode.WRONG_TYPE, "in needs a list in parentheses", fix)
    try:
        values = next(csv.reader([text[1:-1]], strict=True))
    except (csv.Error, StopIteration) as error:
        raise ValueFault(FaultCode.WRONG_TYPE, f"the list of in cannot be read: {error}", fix) from error
    if len(values) > MOST_VALUES:
        message = f"in has {len(values)} elements, more than {MOST_VALUES}"
        raise ValueFault(FaultCode.OUT_OF_RANGE, message, "send several requests")
    return tuple(_scalar(data_type, value) for value in values)


def _pattern(data_type: DataType, text: str) -> str:
    if data_type.family is not Family.TEXT:
        message = f"like is for text, and the column is {data_type.base_sql}"
        raise ValueFault(FaultCode.ILLEGAL_COLUMN_TYPE, message, "use eq, ne, lt, lte, gt, gte, in or is")
    if len(text) > LONGEST_PATTERN:
        message = f"the pattern has {len(text)} characters, at most {LONGEST_PATTERN} are read"
        raise ValueFault(FaultCode.TOO_LONG, message, "send a shorter pattern, or several filters")
    if (len(text) - len(text.rstrip("\\"))) % 2:
        message = "the pattern ends in a single backslash"
        raise ValueFault(FaultCode.WRONG_TYPE, message, "write two for a literal one")
    return text


def _null(_: DataType, text: str) -> bool:
    if text not in ("null", "not_null"):
        raise ValueFault(FaultCode.ENUM, f"is cannot be {text[:50]!r}", "send is.null or is.not_null")
    return text == "null"


_READERS: Mapping[Operator, Callable[[DataType, str], Any]] = {
    **dict.fromkeys((Operator.EQ, Operator.NE), _scalar),
    **dict.fromkeys((Operator.LT, Operator.LTE, Operator.GT, Operator.GTE), _ordered),
    Operator.IN: _list,
    Operator.LIKE: _pattern,
    Operator.IS: _null,
}
