"""Which tables may be published as Delta (decision 31): nothing is copied, so every visible column of a run must hold
what is shown, in a type and under a name that Delta's readers have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from app.core.errors import FaultCode, Violation
from app.core.plan.columns.column_functions import stored_otherwise
from app.core.plan.columns.delta_schema import DELTA_TYPES
from app.core.table.options.entries import MergeEngine
from app.core.table.options.parsed import TableOptions, option_violation
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import walk_types

PUBLISH = "delta.publish"
INTERVAL = "delta.publish.interval"
_LEAST_INTERVAL = timedelta(seconds=1)
# Without column mapping, which not every reader has, Delta's writers and Spark refuse names with one of these.
_ODD_CHARACTERS = " ,;{}()\n\t="


def _columns(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Every column is stored as it is shown, in a type and under a name that Delta has."""
    if not options[PUBLISH]:
        return
    for column in schema.columns:
        reason = _unlike(schema, options, column)
        if reason is not None:
            message = f"column {column.name!r} cannot be published as Delta: {reason}"
            fix = f"remove {PUBLISH}, or the column or what is said of it"
            yield option_violation(PUBLISH, FaultCode.NOT_IN_DELTA, message, fix, column.name)
    for names in _twins([column.name for column in schema.columns]):
        message = f"columns {names} differ in case only, which Delta's readers do not tell apart"
        yield option_violation(PUBLISH, FaultCode.NOT_IN_DELTA, message, f"remove {PUBLISH}, or rename one")


def _unlike(schema: TableSchema, options: TableOptions, column: Column) -> str | None:
    """Return why readers of the files would not see what is shown, None if they would."""
    for inside in walk_types(column.type):
        if DELTA_TYPES[inside.kind] is None:
            return f"Delta has no type for {inside.base_sql}"
        if any(True for _ in _twins([field.name for field in inside.fields])):
            return "fields of its ROW differ in case only"
    names = [column.name, *(field.name for inside in walk_types(column.type) for field in inside.fields)]
    odd = next((name for name in names if set(name) & set(_ODD_CHARACTERS)), None)
    if odd is not None:
        return f"no name in Delta has a blank or one of ,;{{}}()= as {odd!r} has"
    function = stored_otherwise(schema, options, column.name)
    if function is not None:
        return f"{function.name} stores another value than it shows"
    defaulted = column.default is not None or options.of_field(column.name, "default-value") is not None
    if defaulted and options.engine not in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW):
        return "its default stands for null only when a row is shown"
    return None


def _twins(names: Sequence[str]) -> Iterator[str]:
    counts = Counter(name.lower() for name in names)
    for folded, count in counts.items():
        if count > 1:
            yield ", ".join(repr(name) for name in names if name.lower() == folded)


def _log_options(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """An interval needs a publication, be it one that is turned off, and leaves time for something else."""
    if options[INTERVAL] is not None and options[INTERVAL] < _LEAST_INTERVAL:
        message = f"{INTERVAL} is shorter than a second: the table would be rewritten without a pause"
        fix = "choose it by how long a full compaction takes: 15 min"
        yield option_violation(INTERVAL, FaultCode.OUT_OF_RANGE, message, fix)
    if options.given(INTERVAL) and not options.given(PUBLISH):
        message = f"{INTERVAL} says how far a publication may lag, but nothing is published"
        yield option_violation(INTERVAL, FaultCode.MISSING_OPTION, message, f"set {PUBLISH} = true, or remove it")


DELTA_CHECKS = (_columns, _log_options)
