"""Records with values for columns that the table does not have: the values are left out, or the columns are added
(``unknownColumns``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from app.core.alter.actions import holds
from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.records.unknown_columns import MOST_NAMES, DeclaredColumn, FoundColumns
from app.core.table.history import Table
from app.core.table.options.entries import MergeEngine
from app.core.types.parser import parse_type
from app.services.tables.guesses import type_of

# Faults of values that a wider type may hold.
_TOO_NARROW: Final = frozenset(
    {FaultCode.OUT_OF_RANGE, FaultCode.TOO_LONG, FaultCode.TOO_MANY_DIGITS, FaultCode.WRONG_TYPE}
)


_TOO_MANY: Final = f"the records name more than {MOST_NAMES} columns that the table does not have"
logger = logging.getLogger(__name__)


def changes_for(table: Table, unknown: FoundColumns | None, faults: Iterable[Violation]) -> list[Mapping[str, Any]]:
    """Return the schema changes (Paimon's JSON) that add the columns, and widen the types of columns with ``faults``;
    empty if no change is needed. Raise ``Invalid`` for too many columns.
    """
    if unknown is None or unknown.declared is None:
        return []
    if unknown.more:
        fault = Violation("/unknownColumns", FaultCode.TOO_MANY, _TOO_MANY, "alter the table, then post")
        raise Invalid("the columns are not added", violations=[fault])
    changes: list[Mapping[str, Any]] = []
    for name in unknown.records:
        data_type = _type(unknown.declared, unknown.values, name)
        if data_type is not None:
            changes.append({"action": "addColumn", "fieldNames": [name], "dataType": data_type})
            changes += _default(table, unknown.declared.get(name), name)
    narrow = {fault.column for fault in faults if fault.column is not None and fault.code in _TOO_NARROW}
    for name in sorted(narrow & unknown.declared.keys() & table.schema.by_name.keys()):
        data_type = unknown.declared[name].type
        if holds(table.schema.by_name[name].type, parse_type(data_type), name in table.schema.primary_key):
            changes.append(
                {"action": "updateColumnType", "fieldNames": [name], "newDataType": data_type, "keepNullability": True}
            )
    return changes


def _type(declared: Mapping[str, DeclaredColumn], values: Mapping[str, Sequence[Any]], name: str) -> str | None:
    """Return the type that the source declares, else the narrowest type of the values; None if all are null, which
    fits any type.
    """
    if name in declared:
        return declared[name].type
    return type_of(values[name]) if values[name] else None


def _default(table: Table, declared: DeclaredColumn | None, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the change that sets a column's default, if existing rows show the default; not if it would replace nulls
    that are sent.
    """
    at_write = table.schema.parsed.engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)
    if declared is None or declared.default is None or at_write:
        return []
    return [{"action": "updateColumnDefaultValue", "fieldNames": [name], "newDefaultValue": declared.default}]


def log_ignored(table: Table, unknown: FoundColumns | None) -> None:
    """Log the columns that were left out, each once."""
    for name in unknown.records if unknown is not None else ():
        _log_once(table.full_name, name)


@lru_cache(maxsize=1024)
def _log_once(table: str, column: str) -> None:
    logger.warning("records for %s have a column %r, which is left out (unknownColumns=ignore)", table, column)
