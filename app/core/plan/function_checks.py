"""Functions and defaults of columns, on columns that can have them (merge-semantics §6.1.3, §6.2, §6.4.13)."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.errors import About, FaultCode, Violation
from app.core.functions.entries import ALIASES, FUNCTIONS, find_function
from app.core.table.options import MergeEngine, TableOptions, field_key, option_violation
from app.core.table.schema import TableSchema
from app.core.types.scalars import ValueFault
from app.core.types.values import text_decoder


def _functions(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Named functions exist (§6.2.7) and take the column's type (§6.2.8)."""
    if options.engine not in (MergeEngine.AGGREGATION, MergeEngine.PARTIAL_UPDATE):
        return
    known = ", ".join([*FUNCTIONS, *ALIASES])
    default = options.default_function
    if default is not None and find_function(default) is None:
        yield option_violation(
            "fields.default-aggregate-function",
            FaultCode.UNKNOWN_FUNCTION,
            f"unknown function {default!r}",
            f"known: {known}",
        )
    for (column_name, suffix), text in options.fields.items():
        name = text.strip()
        if suffix == "aggregate-function" and find_function(name) is None:
            yield option_violation(
                field_key(column_name, suffix),
                FaultCode.UNKNOWN_FUNCTION,
                f"unknown function {name!r}",
                f"known: {known}",
            )
    for column in schema.value_columns:
        own = options.of_field(column.name, "aggregate-function")
        function = find_function(own or default or "")
        if function is None or not _aggregates(schema, options, column.name):
            continue
        if function.types(column.type):
            for found in function.faults(column, options.of_function(column.name)):
                key = field_key(column.name, found.suffix)
                yield option_violation(key, found.code, found.message, found.fix, column.name)
            continue
        key = field_key(column.name, "aggregate-function") if own else "fields.default-aggregate-function"
        message = f"function {function.name} takes {function.takes}, column {column.name!r} is {column.type.base_sql}"
        yield option_violation(
            key, FaultCode.ILLEGAL_FUNCTION_TYPE, message, "choose another function or column type", column.name
        )


def _aggregates(schema: TableSchema, options: TableOptions, column: str) -> bool:
    """Whether a function on the column takes effect (§4.5): not on keys, sequence fields and ordering fields."""
    if column in schema.primary_key:
        return False
    if options.engine is MergeEngine.AGGREGATION:
        return column not in options["sequence.field"]
    return not any(column in group.ordering for group in options.groups)


def _retraction(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """``ignore-retract`` contradicts ``aggregation.remove-record-on-delete`` (§6.2.8)."""
    for column, suffix in options.fields:
        if (
            suffix == "ignore-retract"
            and options["aggregation.remove-record-on-delete"]
            and options.of_field(column, suffix)
        ):
            message = "ignore-retract and aggregation.remove-record-on-delete cannot stand together"
            yield option_violation(
                field_key(column, suffix), FaultCode.CONTRADICTING_OPTIONS, message, "remove one of the two"
            )


def _free_functions(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A function other than last_non_null_value needs a sequence group (§6.4.13)."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE:
        return
    protected = {name for group in options.groups for name in group.protected}
    ordering = {name for group in options.groups for name in group.ordering}
    for column in schema.value_columns:
        own = options.of_field(column.name, "aggregate-function")
        if column.name in ordering:
            if own:
                message = f"ordering field {column.name!r} cannot have an aggregate function"
                key = field_key(column.name, "aggregate-function")
                yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, message, "remove it", column.name)
            continue
        function = own or options.default_function
        if function is None or column.name in protected or function == "last_non_null_value":
            continue
        key = field_key(column.name, "aggregate-function") if own else "fields.default-aggregate-function"
        message = f"column {column.name!r} has function {function} but is in no sequence group"
        fix = f"protect it: fields.<ordering field>.sequence-group = {column.name}"
        yield option_violation(key, FaultCode.FUNCTION_OUTSIDE_GROUP, message, fix, column.name)


def _default_values(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Defaults cast to their column (§6.1.3); key and partition columns have none by option (§1.4 point 2)."""
    for index, column in enumerate(schema.columns):
        if column.default is not None:
            fault = _default_fault(schema, column.name, column.default)
            if fault:
                yield Violation(
                    f"/fields/{index}/defaultValue",
                    FaultCode.ILLEGAL_DEFAULT,
                    fault,
                    "write a value of the column's type",
                    about=About(columns=(column.name,)),
                )
    for (name, suffix), text in options.fields.items():
        if suffix != "default-value" or name not in schema.by_name:
            continue
        if name in (*schema.primary_key, *schema.partition_keys):
            yield option_violation(
                field_key(name, suffix),
                FaultCode.KEY_WITH_DEFAULT,
                f"key column {name!r} cannot have a default",
                "remove it",
                name,
            )
            continue
        fault = _default_fault(schema, name, text)
        if fault:
            yield option_violation(
                field_key(name, suffix), FaultCode.ILLEGAL_DEFAULT, fault, "write a value of the column's type", name
            )


def _default_fault(schema: TableSchema, name: str, text: str) -> str | None:
    column = schema.by_name[name]
    if not column.type.comparable:
        return f"a {column.type.base_sql} column cannot have a default"
    try:
        stripped = text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "'" else text
        text_decoder(column.type)(stripped)
    except ValueFault as fault:
        return f"the default of {name!r}: {fault}"
    return None


FUNCTION_CHECKS = (_functions, _retraction, _free_functions, _default_values)
