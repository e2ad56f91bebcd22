"""Which tables may be published (decision 31): nothing is copied, so every visible column of a run must hold what is
shown, in a type and under a name that the format's readers have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.core.errors import FaultCode, Violation
from app.core.plan.columns.column_functions import stored_otherwise
from app.core.plan.columns.delta_schema import DELTA_TYPES
from app.core.plan.columns.iceberg_schema import ICEBERG_TYPES
from app.core.table.options.entries import MergeEngine
from app.core.table.options.parsed import TableOptions, option_violation
from app.core.table.published import Format
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import walk_types
from app.core.types.kinds import Kind

_LEAST_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True)
class _Taken:
    """The limits of a format: its types, the characters that names may not have, and the code of a refusal."""

    called: str
    types: Mapping[Kind, Any]
    odd_characters: str
    fault: FaultCode


_TAKEN: Mapping[Format, _Taken] = {
    # Without column mapping, which not every reader has, Delta's writers and Spark refuse names with one of these.
    Format.DELTA: _Taken("Delta", DELTA_TYPES, " ,;{}()\n\t=", FaultCode.NOT_IN_DELTA),
    Format.ICEBERG: _Taken("Iceberg", ICEBERG_TYPES, "", FaultCode.NOT_IN_ICEBERG),
}


def _columns(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Every column is stored as it is shown, in a type and under a name that the format has."""
    for form, taken in _TAKEN.items():
        if options[form.publish]:
            yield from _unpublishable(schema, options, form.publish, taken)


def _unpublishable(schema: TableSchema, options: TableOptions, publish: str, taken: _Taken) -> Iterator[Violation]:
    for column in schema.columns:
        reason = _unlike(schema, options, column, taken)
        if reason is not None:
            message = f"column {column.name!r} cannot be published as {taken.called}: {reason}"
            fix = f"remove {publish}, or change or remove the column"
            yield option_violation(publish, taken.fault, message, fix, column.name)
    for names in _twins([column.name for column in schema.columns]):
        message = f"columns {names} differ in case only, which readers of {taken.called} do not distinguish"
        yield option_violation(publish, taken.fault, message, f"remove {publish}, or rename one")


def _unlike(schema: TableSchema, options: TableOptions, column: Column, taken: _Taken) -> str | None:
    """Return why readers of the files would not see what is shown, None if they would."""
    for inside in walk_types(column.type):
        if taken.types[inside.kind] is None:
            return f"{taken.called} has no type for {inside.base_sql}"
        if any(True for _ in _twins([field.name for field in inside.fields])):
            return "fields of its ROW differ in case only"
    names = [column.name, *(field.name for inside in walk_types(column.type) for field in inside.fields)]
    odd = next((name for name in names if set(name) & set(taken.odd_characters)), None)
    if odd is not None:
        return f"no name in {taken.called} has a blank or one of ,;{{}}()= as {odd!r} has"
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


def _intervals(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """An interval needs a publication, be it one that is turned off, and leaves time for something else."""
    for form in Format:
        interval, publish = form.interval, form.publish
        if options[interval] is not None and options[interval] < _LEAST_INTERVAL:
            message = f"{interval} is shorter than a second: the table would be rewritten without a pause"
            fix = "choose an interval longer than a full compaction takes, such as 15 min"
            yield option_violation(interval, FaultCode.OUT_OF_RANGE, message, fix)
        if options.given(interval) and not options.given(publish):
            message = f"{interval} says how far a publication may lag, but nothing is published"
            yield option_violation(interval, FaultCode.MISSING_OPTION, message, f"set {publish} = true, or remove it")


PUBLICATION_CHECKS = (_columns, _intervals)
