"""Examples of folds: a few values of one column in records of one key, folded by the program itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.core.errors import FaultCode, Invalid
from app.core.functions.entries import AggregateFunction, find_function
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.options.entries import MergeEngine
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, SchemaBounds
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.core.types.parser import parse_type
from app.services.explaining.simulations import simulate_on_nothing
from app.services.explaining.type_samples import samples
from app.services.tables.tables import validate_table

LONGEST_TYPE: Final = 500  # characters
_COLUMN: Final = "value"
# In the order in which they are tried: the first that a function takes is the type of its example.
_TYPES: Final = (
    Kind.INT.value,
    Kind.BOOLEAN.value,
    Kind.STRING.value,
    Kind.BYTES.value,
    f"{Kind.ARRAY}<{Kind.STRING}>",
    f"{Kind.MAP}<{Kind.STRING}, {Kind.INT}>",
    f"{Kind.MAP}<{Kind.STRING}, {Kind.ROW}<v {Kind.INT}, at {Kind.INT}>>",
    f"{Kind.ARRAY}<{Kind.ROW}<id {Kind.INT}, v {Kind.STRING}>>",
)


@dataclass(frozen=True)
class FoldExample:
    """``values`` of a column of the ``type`` in records of one key, and the ``result`` in the row, as JSON.

    ``options`` are those of the column that the function needs besides its name.
    """

    type: str
    values: Sequence[Any]
    result: Any
    options: Mapping[str, str]


def fold_example(
    engine: MergeEngine,
    type_sql: str,
    function: str = "",
    bounds: SchemaBounds = DEFAULT_BOUNDS.table,
    *,
    orders: bool = False,
) -> FoldExample:
    """Return an example of a column of the type, folded by the function, or by the engine alone. ``orders``: the column
    is the sequence field of its table.

    Raise ``Invalid`` if a table cannot have such a column, ``Conflict`` if the total is outside its type.
    """
    if len(type_sql) > LONGEST_TYPE:
        raise Invalid(f"there is no example of a type with more than {LONGEST_TYPE} characters")
    of_table = {"merge-engine": engine.value, **({"sequence.field": _COLUMN} if orders else {})}
    options = {"aggregate-function": function} if function else {}
    try:
        schema = _schema(of_table, type_sql, options, bounds)
    except Invalid as invalid:
        needed = _needed(invalid, type_sql)
        if not needed:
            raise
        options |= needed
        schema = _schema(of_table, type_sql, options, bounds)
    values = _values(schema.by_name[_COLUMN].type, find_function(function))
    [row] = simulate_on_nothing(compile_plan(schema), [{"key": 1, _COLUMN: value} for value in values])
    result = None if row.after is None else row.after[_COLUMN]
    options.pop("aggregate-function", None)
    return FoldExample(schema.by_name[_COLUMN].type.sql, values, result, options)


def function_example(function: AggregateFunction) -> FoldExample:
    """Return the example of a function, with the first type that it takes."""
    taken = next(type_text for type_text in _TYPES if function.types(parse_type(type_text)))
    return fold_example(MergeEngine.AGGREGATION, taken, function.name)


def _values(data_type: DataType, function: AggregateFunction | None) -> list[Any]:
    return [*function.samples] if function is not None and function.samples else samples(data_type)


def _schema(
    of_table: Mapping[str, str], type_sql: str, options: Mapping[str, str], bounds: SchemaBounds
) -> TableSchema:
    """Return the schema of the example. Raise ``Invalid``."""
    body = {
        "fields": [
            {"id": 0, "name": "key", "type": f"{Kind.INT} NOT NULL"},
            {"id": 1, "name": _COLUMN, "type": type_sql},
        ],
        "primaryKeys": ["key"],
        "options": {**of_table, **{f"fields.{_COLUMN}.{key}": text for key, text in options.items()}},
    }
    return validate_table("example", body, bounds)


def _needed(invalid: Invalid, type_sql: str) -> dict[str, str]:
    """Return the options with nested fields that the function requires: each names the first field."""
    missing = [fault.about.option or "" for fault in invalid.violations if fault.code is FaultCode.MISSING_OPTION]
    if not missing:
        return {}
    element = parse_type(type_sql).element
    first = element.fields[0].name if element is not None and element.fields else ""
    return {key.rpartition(".")[2]: first for key in missing}
