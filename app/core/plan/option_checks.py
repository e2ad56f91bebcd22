"""What options may stand together, and with which columns: every rule of merge-semantics §6, one function each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from app.core.errors import FaultCode, Violation
from app.core.functions.entries import ALIASES, FUNCTIONS, find_function
from app.core.rules.order import FLOATING, TEXT, TIMESTAMPS
from app.core.table.options import ChangelogProducer, MergeEngine, TableOptions, option_violation
from app.core.table.schema import TableSchema
from app.core.types.scalars import ValueFault
from app.core.types.values import text_decoder

PADDING_FLAG = "row-kind-flag"
PADDING_FLOORS = {"second-to-micro": "SECOND", "millis-to-micro": "MILLISECOND"}
PADDED_KINDS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "DECIMAL", *FLOATING, *TEXT[:2], "STRING", *TIMESTAMPS)
GROUP_ORDERING_KINDS = (
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "DECIMAL",
    "DATE",
    "TIME",
    *FLOATING,
    *TEXT,
    *TIMESTAMPS,
)

Check = Callable[[TableSchema, TableOptions], Iterator[Violation]]


def check_options(schema: TableSchema, options: TableOptions) -> list[Violation]:
    """Every fault of the options as a whole; what could not be read at all is not looked at again."""
    return [fault for check in CHECKS for fault in check(schema, options)]


def _field_key(column: str, suffix: str) -> str:
    return f"fields.{column}.{suffix}"


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
                _field_key(column_name, suffix),
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
                yield option_violation(_field_key(column.name, found.suffix), found.code, found.message, found.fix)
            continue
        key = _field_key(column.name, "aggregate-function") if own else "fields.default-aggregate-function"
        message = f"function {function.name} takes {function.takes}, column {column.name!r} is {column.type.base_sql}"
        yield option_violation(key, FaultCode.ILLEGAL_FUNCTION_TYPE, message, "choose another function or column type")


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
                _field_key(column, suffix), FaultCode.CONTRADICTING_OPTIONS, message, "remove one of the two"
            )


def _sequence_field(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.3.9."""
    names = options["sequence.field"]
    key = "sequence.field"
    for index, name in enumerate(names):
        if name not in schema.by_name:
            yield option_violation(
                key, FaultCode.UNKNOWN_COLUMN, f"sequence field {name!r} is not a column", "name a column"
            )
            continue
        if name in names[:index]:
            yield option_violation(
                key, FaultCode.DUPLICATE_COLUMN, f"sequence field {name!r} is listed twice", "list it once"
            )
        if not schema.by_name[name].type.comparable:
            message = f"sequence field {name!r} is {schema.by_name[name].type.base_sql}, which has no order"
            yield option_violation(key, FaultCode.ILLEGAL_ORDER_TYPE, message, "use a scalar column")
        if (name, "aggregate-function") in options.fields:
            message = f"sequence field {name!r} has an aggregate function"
            fix = f"remove {_field_key(name, 'aggregate-function')}"
            yield option_violation(
                _field_key(name, "aggregate-function"), FaultCode.CONTRADICTING_OPTIONS, message, fix
            )
    if names and options.engine is MergeEngine.FIRST_ROW:
        fix = "remove sequence.field: first-row keeps what arrives first"
        yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, "first-row takes no sequence field", fix)


def _snapshot_ordering(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.3.10."""
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
    """Legal values of §3.4: one floor, one flag, the flag last, on one sequence field of a type that converts."""
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
    elif fields[0] in schema.by_name and schema.by_name[fields[0]].type.kind not in PADDED_KINDS:
        message = f"a {schema.by_name[fields[0]].type.base_sql} cannot be padded"
        yield option_violation(
            key, FaultCode.ILLEGAL_ORDER_TYPE, message, "use a number, date, timestamp or numeric text"
        )


def _row_kind_field(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.5.18."""
    name = options["rowkind.field"]
    if name is None:
        return
    if name not in schema.by_name:
        yield option_violation(
            "rowkind.field", FaultCode.UNKNOWN_COLUMN, f"row kind field {name!r} is not a column", "name a text column"
        )
    elif schema.by_name[name].type.kind not in TEXT:
        message = f"row kind field {name!r} is {schema.by_name[name].type.base_sql}"
        yield option_violation(
            "rowkind.field", FaultCode.ILLEGAL_COLUMN_TYPE, message, "use a CHAR, VARCHAR or STRING column"
        )


def _sequence_groups(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.4.11 and §6.4.12: fields exist, no key columns, every column in one group and one place only."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE:
        return
    owner: dict[str, str] = {}
    for group in options.groups:
        for place, name in [("ordering", n) for n in group.ordering] + [("protected", n) for n in group.protected]:
            if name not in schema.by_name:
                if place == "protected":
                    message = f"protected field {name!r} is not a column"
                    yield option_violation(group.key, FaultCode.UNKNOWN_COLUMN, message, "name a column")
                continue
            if name in schema.primary_key:
                message = f"key column {name!r} cannot be in a sequence group"
                yield option_violation(group.key, FaultCode.KEY_IN_GROUP, message, "remove it")
            if place == "ordering" and schema.by_name[name].type.kind not in GROUP_ORDERING_KINDS:
                message = f"ordering field {name!r} is {schema.by_name[name].type.base_sql}"
                yield option_violation(
                    group.key, FaultCode.ILLEGAL_ORDER_TYPE, message, "use a number, text, date, time or timestamp"
                )
            if owner.get(name, group.key) != group.key:
                message = f"column {name!r} is already in the group {owner[name]}"
                yield option_violation(group.key, FaultCode.COLUMN_IN_TWO_GROUPS, message, "keep it in one group")
            owner.setdefault(name, group.key)
        yield from _group_lists(group.key, group.ordering, group.protected)


def _group_lists(key: str, ordering: tuple[str, ...], protected: tuple[str, ...]) -> Iterator[Violation]:
    for listed in (ordering, protected):
        for name in sorted({name for name in listed if listed.count(name) > 1}):
            yield option_violation(key, FaultCode.DUPLICATE_COLUMN, f"column {name!r} is named twice", "name it once")
    if not protected:
        yield option_violation(
            key, FaultCode.ILLEGAL_OPTION_VALUE, "the group protects no column", "list the protected columns"
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
                yield option_violation(
                    _field_key(column.name, "aggregate-function"), FaultCode.CONTRADICTING_OPTIONS, message, "remove it"
                )
            continue
        function = own or options.default_function
        if function is None or column.name in protected or function == "last_non_null_value":
            continue
        key = _field_key(column.name, "aggregate-function") if own else "fields.default-aggregate-function"
        message = f"column {column.name!r} has function {function} but is in no sequence group"
        fix = f"protect it: fields.<ordering field>.sequence-group = {column.name}"
        yield option_violation(key, FaultCode.FUNCTION_OUTSIDE_GROUP, message, fix)


def _removals(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.4.14."""
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
            on_delete, FaultCode.CONTRADICTING_OPTIONS, f"{on_delete} cannot stand with sequence groups", fix
        )
    ordering = {name for group in options.groups for name in group.ordering}
    for name in options[on_group]:
        if name not in ordering:
            message = f"{name!r} is not an ordering field of a sequence group"
            yield option_violation(
                on_group, FaultCode.UNKNOWN_GROUP, message, f"ordering fields: {', '.join(sorted(ordering)) or 'none'}"
            )


def _producers(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.5.16."""
    producer = options["changelog-producer"]
    if options.engine is MergeEngine.FIRST_ROW and producer not in (ChangelogProducer.NONE, ChangelogProducer.LOOKUP):
        message = f"first-row cannot have changelog-producer {producer}"
        yield option_violation("changelog-producer", FaultCode.CONTRADICTING_OPTIONS, message, "use none or lookup")


def _modes(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.5.16, §6.5.17, §6.5.20: modes of Paimon's that contradict each other, refused although they have no effect
    here.
    """
    producer, engine = options["changelog-producer"], options.engine
    vectors, overwrite, deltas = "deletion-vectors.enabled", "streaming-read-overwrite", "full-compaction.delta-commits"
    found = (
        (vectors, options[vectors] and producer is ChangelogProducer.FULL_COMPACTION, f"changelog-producer {producer}"),
        (vectors, options[vectors] and engine is MergeEngine.FIRST_ROW, "first-row"),
        (
            overwrite,
            options[overwrite] and producer in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION),
            f"changelog-producer {producer}",
        ),
        (deltas, options.given(deltas) and producer is ChangelogProducer.LOOKUP, f"changelog-producer {producer}"),
    )
    for key, contradicts, what in found:
        if contradicts:
            yield option_violation(
                key, FaultCode.CONTRADICTING_OPTIONS, f"{key} cannot stand with {what}", "remove one of the two"
            )
    yield from _clustering(options)


def _clustering(options: TableOptions) -> Iterator[Violation]:
    key = "pk-clustering-override"
    if not options[key]:
        return
    if options.engine not in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW):
        yield option_violation(
            key, FaultCode.CONTRADICTING_OPTIONS, f"{key} cannot stand with {options.engine}", "remove it"
        )
    if options["sequence.field"]:
        yield option_violation(
            key, FaultCode.CONTRADICTING_OPTIONS, f"{key} cannot stand with sequence.field", "remove one of the two"
        )
    if options["changelog-producer"] not in (ChangelogProducer.NONE, ChangelogProducer.INPUT):
        message = f"{key} cannot stand with changelog-producer {options['changelog-producer']}"
        yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, message, "use none or input")


def _buckets(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """§6.1.4."""
    bucket, keys = options["bucket"], options["bucket-key"]
    if bucket < 1 and bucket not in (-1, -2):
        yield option_violation(
            "bucket", FaultCode.ILLEGAL_OPTION_VALUE, f"bucket is {bucket}", "write a count from 1, or -1, or -2"
        )
    if keys and options.given("bucket") and bucket == -1:
        message = "bucket-key cannot stand with bucket = -1"
        yield option_violation(
            "bucket-key", FaultCode.CONTRADICTING_OPTIONS, message, "remove bucket-key or set a bucket count"
        )
    for name in keys:
        if name not in schema.by_name:
            yield option_violation(
                "bucket-key", FaultCode.UNKNOWN_COLUMN, f"bucket key {name!r} is not a column", "name a column"
            )
        elif not schema.by_name[name].type.legal_key:
            message = f"bucket key {name!r} is {schema.by_name[name].type.base_sql}"
            yield option_violation("bucket-key", FaultCode.ILLEGAL_KEY_TYPE, message, "use a scalar column")


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
                )
    for (name, suffix), text in options.fields.items():
        if suffix != "default-value" or name not in schema.by_name:
            continue
        if name in (*schema.primary_key, *schema.partition_keys):
            yield option_violation(
                _field_key(name, suffix),
                FaultCode.KEY_WITH_DEFAULT,
                f"key column {name!r} cannot have a default",
                "remove it",
            )
            continue
        fault = _default_fault(schema, name, text)
        if fault:
            yield option_violation(
                _field_key(name, suffix), FaultCode.ILLEGAL_DEFAULT, fault, "write a value of the column's type"
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


def _partition_expiry(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Partitions expire where there are any; a timestamp pattern names partition columns."""
    key = "partition.expiration-time"
    if options.given(key) and not schema.partition_keys:
        message = "a table without partitionKeys has no partitions that could expire"
        yield option_violation(
            key, FaultCode.MISSING_PARTITION_KEYS, message, "declare partitionKeys, or remove the option"
        )
    pattern = options["partition.timestamp-pattern"] or ""
    for name in re.findall(r"\$(\w+)", pattern):
        if not name.startswith(schema.partition_keys or "\0"):
            message = f"${name} of the timestamp pattern is no partition column"
            fix = f"partition columns: {', '.join(schema.partition_keys) or 'none'}"
            yield option_violation("partition.timestamp-pattern", FaultCode.UNKNOWN_COLUMN, message, fix)


CHECKS: tuple[Check, ...] = (
    _partition_expiry,
    _functions,
    _retraction,
    _sequence_field,
    _snapshot_ordering,
    _auto_padding,
    _row_kind_field,
    _sequence_groups,
    _free_functions,
    _removals,
    _producers,
    _modes,
    _buckets,
    _default_values,
)
