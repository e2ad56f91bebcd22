"""Checks of options that order the records of a key: sequence fields, padding, row kinds, groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from app.core.errors import FaultCode, Violation
from app.core.table.options.entries import TABLE_OPTIONS, MergeEngine
from app.core.table.options.parsed import TableOptions, field_key, option_violation
from app.core.table.schema import TableSchema
from app.core.types.kinds import Family

PADDING_FLAG = "row-kind-flag"


PADDING_FLOORS = {"second-to-micro": "SECOND", "millis-to-micro": "MILLISECOND"}


def _sequence_field(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation for each fault of ``sequence.field``."""
    names = options["sequence.field"]
    key = "sequence.field"
    seen: set[str] = set()
    for name in names:
        if name not in schema.by_name:
            yield option_violation(
                key, FaultCode.UNKNOWN_COLUMN, f"sequence field {name!r} is not a column", "name a column", name
            )
            continue
        if name in seen:
            yield option_violation(
                key, FaultCode.DUPLICATE_COLUMN, f"sequence field {name!r} is listed twice", "list it once", name
            )
        seen.add(name)
        if not schema.by_name[name].type.comparable:
            message = f"sequence field {name!r} is {schema.by_name[name].type.base_sql}, which has no order"
            yield option_violation(key, FaultCode.ILLEGAL_ORDER_TYPE, message, "use a scalar column", name)
        if (name, "aggregate-function") in options.fields:
            message = f"sequence field {name!r} has an aggregate function"
            fix = f"remove {field_key(name, 'aggregate-function')}"
            of_function = field_key(name, "aggregate-function")
            yield option_violation(of_function, FaultCode.CONTRADICTING_OPTIONS, message, fix, name)
    if names and not TABLE_OPTIONS[key].of_engine(options.engine):
        fix = "remove sequence.field: first-row keeps what arrives first"
        yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, "first-row takes no sequence field", fix)


def _snapshot_ordering(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation for each option that snapshot ordering excludes or needs."""
    if not options["sequence.snapshot-ordering"]:
        return
    key = "sequence.snapshot-ordering"
    if options["sequence.field"]:
        yield option_violation(
            key, FaultCode.CONTRADICTING_OPTIONS, "snapshot ordering takes no sequence.field", "remove sequence.field"
        )
    if not options["write-only"]:
        yield option_violation(
            key, FaultCode.MISSING_OPTION, "snapshot ordering needs write-only", "set write-only = true"
        )


def _auto_padding(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Legal padding: one floor, one flag, the flag last, on one sequence field of a type that converts."""
    steps = options["sequence.auto-padding"]
    key = "sequence.auto-padding"
    if not steps:
        return
    fix = f"write {PADDING_FLAG}, second-to-micro, millis-to-micro, or one of the latter followed by {PADDING_FLAG}"
    unknown = [step for step in steps if step != PADDING_FLAG and step not in PADDING_FLOORS]
    flag_inside = PADDING_FLAG in steps[:-1]
    if (
        unknown
        or flag_inside
        or len([step for step in steps if step in PADDING_FLOORS]) > 1
        or len(set(steps)) < len(steps)
    ):
        yield option_violation(key, FaultCode.ILLEGAL_OPTION_VALUE, f"illegal padding {', '.join(steps)!r}", fix)
    fields = options["sequence.field"]
    if len(fields) != 1:
        yield option_violation(
            key, FaultCode.MISSING_OPTION, "padding needs one sequence field", "set sequence.field to one column"
        )
    elif fields[0] in schema.by_name and not schema.by_name[fields[0]].type.entry.padded:
        message = f"a {schema.by_name[fields[0]].type.base_sql} cannot be padded"
        yield option_violation(
            key, FaultCode.ILLEGAL_ORDER_TYPE, message, "use a number, date, timestamp or numeric text"
        )


def _row_kind_field(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation unless the row kind field is a text column of the table."""
    name = options["rowkind.field"]
    if name is None:
        return
    if name not in schema.by_name:
        yield option_violation(
            "rowkind.field",
            FaultCode.UNKNOWN_COLUMN,
            f"row kind field {name!r} is not a column",
            "name a text column",
            name,
        )
    elif schema.by_name[name].type.family is not Family.TEXT:
        message = f"row kind field {name!r} is {schema.by_name[name].type.base_sql}"
        yield option_violation(
            "rowkind.field", FaultCode.ILLEGAL_COLUMN_TYPE, message, "use a CHAR, VARCHAR or STRING column", name
        )


def _sequence_groups(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Sequence groups: fields exist, no key columns, every column in one group and one place only."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE:
        return
    owner: dict[str, str] = {}
    for group in options.groups:
        for place, name in [("ordering", n) for n in group.ordering] + [("protected", n) for n in group.protected]:
            if name not in schema.by_name:
                if place == "protected":
                    message = f"protected field {name!r} is not a column"
                    yield option_violation(group.key, FaultCode.UNKNOWN_COLUMN, message, "name a column", name)
                continue
            if name in schema.primary_key:
                message = f"key column {name!r} cannot be in a sequence group"
                yield option_violation(group.key, FaultCode.KEY_IN_GROUP, message, "remove it", name)
            if place == "ordering" and not schema.by_name[name].type.entry.orders_groups:
                message = f"ordering field {name!r} is {schema.by_name[name].type.base_sql}"
                yield option_violation(
                    group.key,
                    FaultCode.ILLEGAL_ORDER_TYPE,
                    message,
                    "use a number, text, date, time or timestamp",
                    name,
                )
            if owner.get(name, group.key) != group.key:
                message = f"column {name!r} is already in the group {owner[name]}"
                yield option_violation(group.key, FaultCode.COLUMN_IN_TWO_GROUPS, message, "keep it in one group", name)
            owner.setdefault(name, group.key)
        yield from _group_lists(group.key, group.ordering, group.protected)


def _group_lists(key: str, ordering: tuple[str, ...], protected: tuple[str, ...]) -> Iterator[Violation]:
    for listed in (ordering, protected):
        for name in sorted(name for name, times in Counter(listed).items() if times > 1):
            yield option_violation(
                key, FaultCode.DUPLICATE_COLUMN, f"column {name!r} is named twice", "name it once", name
            )
    if not protected:
        yield option_violation(
            key, FaultCode.ILLEGAL_OPTION_VALUE, "the group protects no column", "list the protected columns"
        )


def _removals(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation for each contradiction of the options by which a -D removes a row."""
    on_delete, on_group = "partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group"
    if options.engine is not MergeEngine.PARTIAL_UPDATE:
        return
    for key in (on_delete, on_group):
        if options[key] and options["ignore-delete"]:
            yield option_violation(
                key, FaultCode.CONTRADICTING_OPTIONS, f"{key} contradicts ignore-delete", "remove one of the two"
            )
    if options[on_delete] and options.groups:
        fix = f"use {on_group}"
        yield option_violation(
            on_delete, FaultCode.CONTRADICTING_OPTIONS, f"{on_delete} cannot be combined with sequence groups", fix
        )
    ordering = {name for group in options.groups for name in group.ordering}
    for name in options[on_group]:
        if name not in ordering:
            message = f"{name!r} is not an ordering field of a sequence group"
            yield option_violation(
                on_group,
                FaultCode.UNKNOWN_GROUP,
                message,
                f"ordering fields: {', '.join(sorted(ordering)) or 'none'}",
                name,
            )


ORDER_CHECKS = (_sequence_field, _snapshot_ordering, _auto_padding, _row_kind_field, _sequence_groups, _removals)
