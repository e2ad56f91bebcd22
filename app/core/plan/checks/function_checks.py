"""Functions on columns that can have them."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.errors import FaultCode, Violation
from app.core.functions.entries import ALIASES, FUNCTIONS, find_function
from app.core.plan.columns.column_functions import function_of, has_functions
from app.core.table.options.entries import DEFAULT_FUNCTION, MergeEngine
from app.core.table.options.parsed import TableOptions, field_key, option_violation
from app.core.table.schema import TableSchema


def _functions(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Named functions exist and take the column's type."""
    if not has_functions(options.engine):
        return
    named = {field_key(*place): name for place, name in options.fields.items() if place[1] == "aggregate-function"}
    if options.given(DEFAULT_FUNCTION):
        named = {DEFAULT_FUNCTION: options[DEFAULT_FUNCTION]} | named
    for key, name in named.items():
        if find_function(name) is None:
            fix = f"known: {', '.join([*FUNCTIONS, *ALIASES])}"
            yield option_violation(key, FaultCode.UNKNOWN_FUNCTION, f"unknown function {name!r}", fix)
    for column in schema.value_columns:
        used = function_of(schema, options, column.name)
        if used is None or used.entry is None:
            continue
        if used.entry.types(column.type):
            for fault in used.entry.faults(column, options.of_function(column.name)):
                yield option_violation(
                    field_key(column.name, fault.suffix), fault.code, fault.message, fault.fix, column.name
                )
            continue
        takes = f"function {used.entry.name} takes {used.entry.takes}"
        message = f"{takes}, column {column.name!r} is {column.type.base_sql}"
        fix = "choose another function or column type"
        yield option_violation(used.key, FaultCode.ILLEGAL_FUNCTION_TYPE, message, fix, column.name)


def _retraction(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """``ignore-retract`` contradicts ``aggregation.remove-record-on-delete``."""
    for column, suffix in options.fields:
        kept = suffix == "ignore-retract" and options.of_field(column, suffix)
        if kept and options["aggregation.remove-record-on-delete"]:
            message = "ignore-retract and aggregation.remove-record-on-delete exclude each other"
            yield option_violation(
                field_key(column, suffix), FaultCode.CONTRADICTING_OPTIONS, message, "remove one of the two"
            )


def _free_functions(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A function other than last_non_null_value needs a sequence group."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE:
        return
    for column in schema.value_columns:
        group = options.group_of(column.name)
        if group is not None:
            if column.name in group.ordering and options.of_field(column.name, "aggregate-function"):
                message = f"ordering field {column.name!r} cannot have an aggregate function"
                key = field_key(column.name, "aggregate-function")
                yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, message, "remove it", column.name)
            continue
        used = function_of(schema, options, column.name)
        if used is not None and used.called != "last_non_null_value":
            message = f"column {column.name!r} has function {used.called} but is in no sequence group"
            fix = f"protect it: fields.<ordering field>.sequence-group = {column.name}"
            yield option_violation(used.key, FaultCode.FUNCTION_OUTSIDE_GROUP, message, fix, column.name)


FUNCTION_CHECKS = (_functions, _retraction, _free_functions)
