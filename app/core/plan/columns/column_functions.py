"""The aggregate function of a column: its own, the default, or the merge engine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.functions.entries import AggregateFunction, find_function
from app.core.table.options.entries import DEFAULT_FUNCTION, MergeEngine
from app.core.table.options.parsed import TableOptions, field_key
from app.core.table.schema import TableSchema

# The engines that have functions, and the function of a column for which no option names one.
_ENGINE_FUNCTIONS: Mapping[MergeEngine, str | None] = {
    MergeEngine.AGGREGATION: "last_non_null_value",
    MergeEngine.PARTIAL_UPDATE: None,
}


@dataclass(frozen=True)
class ColumnFunction:
    """The function of a column: its name in the options (maybe an alias), and the option that names it."""

    called: str
    key: str

    @property
    def entry(self) -> AggregateFunction | None:
        """The function, also by an old name; None if there is none of this name."""
        return find_function(self.called)


def has_functions(engine: MergeEngine) -> bool:
    """Return whether columns are folded by functions under this merge engine."""
    return engine in _ENGINE_FUNCTIONS


def function_of(schema: TableSchema, options: TableOptions, column: str) -> ColumnFunction | None:
    """Return the function that folds the column; None if the merge engine alone does, and for columns that say the key
    or the order of records.
    """
    if not has_functions(options.engine) or column in schema.primary_key or _orders(options, column):
        return None
    function = options.of_field(column, "aggregate-function")
    if function:
        return ColumnFunction(function, field_key(column, "aggregate-function"))
    if options[DEFAULT_FUNCTION] is not None:
        return ColumnFunction(options[DEFAULT_FUNCTION], DEFAULT_FUNCTION)
    of_engine = _ENGINE_FUNCTIONS[options.engine]
    return None if of_engine is None else ColumnFunction(of_engine, "merge-engine")


def stored_otherwise(schema: TableSchema, options: TableOptions, column: str) -> AggregateFunction | None:
    """Return the function of the column if the column of a compacted run holds another value than is shown."""
    used = function_of(schema, options, column)
    return None if used is None or used.entry is None or used.entry.shown_as_stored else used.entry


def _orders(options: TableOptions, column: str) -> bool:
    if options.engine is MergeEngine.AGGREGATION:
        return column in options["sequence.field"]
    group = options.group_of(column)
    return group is not None and column in group.ordering
