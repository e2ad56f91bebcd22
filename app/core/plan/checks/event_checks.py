"""Which columns a change event can fill with its position (``fields.<column>.from-event``)."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.errors import FaultCode, Violation
from app.core.table.options.parsed import TableOptions, field_key, option_violation
from app.core.table.schema import TableSchema


def _positions(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """The column has the position's type, and is neither in the key nor the row-kind column."""
    for (name, suffix), position in options.fields.items():
        column = schema.by_name.get(name)
        if suffix != "from-event" or column is None:
            continue
        key = field_key(name, suffix)
        if name in schema.primary_key or name == options["rowkind.field"]:
            message = f"{name!r} is in the key, or has the row kind: it cannot hold the position of an event"
            yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, message, "use another column", name)
        elif column.type.kind is not position.kind:
            message = f"column {name!r} is {column.type.base_sql}, and {position} is {position.kind}"
            yield option_violation(key, FaultCode.ILLEGAL_COLUMN_TYPE, message, f"make it {position.kind}", name)


EVENT_CHECKS = (_positions,)
