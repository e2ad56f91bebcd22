"""Defaults of columns: what stands for null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.core.errors import About, FaultCode, Violation
from app.core.table.options.parsed import TableOptions, field_key, option_violation
from app.core.table.schema import Column, TableSchema
from app.core.types.values import ValueFault


def default_value(column: Column, text: str) -> Any:
    """Return the value of a default's text: optional single quotes stripped, then read as the column's type.

    Raise ``ValueFault`` for a text that is no such value.
    """
    stripped = text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "'" else text
    return column.type.text_decoder(stripped)


def defaults_of(schema: TableSchema, options: TableOptions) -> dict[str, Any]:
    """Return the default of each column that has one; the option overrides the schema's."""
    texts = {column.name: column.default for column in schema.columns if column.default is not None}
    texts |= {name: text for (name, suffix), text in options.fields.items() if suffix == "default-value"}
    return {name: default_value(schema.by_name[name], text) for name, text in texts.items()}


def row_kind_default(schema: TableSchema, options: TableOptions) -> str | None:
    """Return the DEFAULT of the row kind field; ``default-value`` is only shown and says no row kind."""
    name = options["rowkind.field"]
    column = None if name is None else schema.by_name[name]
    return None if column is None or column.default is None else default_value(column, column.default)


def _default_values(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Defaults cast to their column; key and partition columns have none by option."""
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
        default_value(column, text)
    except ValueFault as fault:
        return f"the default of {name!r}: {fault}"
    return None


DEFAULT_CHECKS = (_default_values,)
