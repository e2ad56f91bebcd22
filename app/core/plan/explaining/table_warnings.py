"""Legal but surprising tables: what an owner should know before posting records."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.errors import FaultCode, Violation
from app.core.hints import some_of
from app.core.plan.checks.option_checks import Check
from app.core.plan.columns.column_functions import function_of, has_functions
from app.core.plan.columns.late_horizon import horizon_warnings
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.options.entries import FIELD_OPTIONS, ChangelogProducer, MergeEngine, find_option
from app.core.table.options.parsed import TableOptions, field_key, option_violation
from app.core.table.schema import TableSchema
from app.core.types.datatype import walk_types
from app.core.types.kinds import Kind

COUNTING = ("sum", "product", "collect", "listagg", "nested_update")


def table_warnings(schema: TableSchema) -> list[Violation]:
    """Return the warnings about a valid table; ``fix`` says how to avoid each."""
    return [warning for check in CHECKS for warning in check(schema, schema.parsed)]


def _counting_groups(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A function in a group sees late records too; a record delivered twice counts twice (docs/semantics.md, Q26)."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE:
        return
    for group in options.groups:
        for name in group.followers:
            used = function_of(schema, options, name)
            if used is not None and used.entry is not None and used.entry.name in COUNTING:
                message = f"{used.entry.name} of {name!r} counts late records and repeated deliveries too"
                fix = "post each record once: send an Idempotency-Key with every batch"
                yield option_violation(group.key, FaultCode.LATE_RECORDS_COUNT, message, fix)


def _counted_events(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A connector sends an event again when it restarts; a function that adds up counts it twice, in any order."""
    if options.engine is not MergeEngine.AGGREGATION or not options["events.source"]:
        return
    for column in schema.value_columns:
        used = function_of(schema, options, column.name)
        if used is not None and used.entry is not None and used.entry.name in COUNTING:
            message = f"{used.entry.name} of {column.name!r} counts an event that its connector sends twice"
            fix = "keep the rows of the source in a table of their own, and add them up where they are read"
            yield option_violation("events.source", FaultCode.LATE_RECORDS_COUNT, message, fix)


def _unordered_events(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Events that come late or twice, of a table that takes events and orders nothing."""
    ordered = options["sequence.field"] or options.groups or options.engine is MergeEngine.FIRST_ROW
    positioned = any(suffix == "from-event" for _, suffix in options.fields)
    if options["events.source"] and not ordered and not positioned:
        message = "nothing orders the change events: one that comes late or twice overwrites newer ones"
        fix = "add a column with fields.<column>.from-event, such as source.lsn, and make it the sequence.field"
        yield option_violation("events.source", FaultCode.EVENTS_UNORDERED, message, fix)


def _ungrouped(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A column in no group of a table with groups takes what arrives last."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE or not options.groups:
        return
    for column in schema.value_columns:
        if options.group_of(column.name) is None and not options["sequence.field"]:
            message = f"column {column.name!r} is in no sequence group: a late record overwrites it"
            key = f"fields.{column.name}.sequence-group"
            yield option_violation(key, FaultCode.COLUMN_IN_NO_GROUP, message, "protect it by a group's ordering field")


def _never_null(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Outside groups a null never overwrites: once set, a column cannot be emptied."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE or options.groups or schema.absent_unchanged:
        return
    names = some_of([column.name for column in schema.value_columns])
    if names:
        message = f"null never overwrites: once set, {names} cannot be emptied"
        fix = "set record.absent-columns = unchanged, or put columns that must be emptied into a sequence group"
        yield option_violation("merge-engine", FaultCode.NULL_NEVER_WRITTEN, message, fix)


def _absent_columns(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Warn that null overwrites: owners of tables made by JSON expect that what a record leaves out stays."""
    key = "record.absent-columns"
    paimons = any((option := find_option(other)) is None or not option.effect for other in options.values)
    if options.engine is MergeEngine.PARTIAL_UPDATE and not options.given(key) and not paimons:
        message = "a column that a record leaves out is null to it, and in a sequence group that null overwrites"
        fix = "set record.absent-columns = unchanged to leave it alone, or = null if this is meant"
        yield option_violation(key, FaultCode.ABSENT_IS_NULL, message, fix)


def _whole_groups(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A record that carries a group's sequence replaces all of the group, with nulls where it has none."""
    if options.engine is not MergeEngine.PARTIAL_UPDATE or schema.absent_unchanged:
        return
    for group in options.groups:
        plain = [name for name in group.followers if function_of(schema, options, name) is None]
        if len(plain) > 1:
            message = f"a record with {some_of(group.ordering)} replaces all of {some_of(plain)}, missing ones by null"
            fix = (
                "set record.absent-columns = unchanged, send all columns, or give other producers a group of their own"
            )
            yield option_violation(group.key, FaultCode.GROUP_REPLACED_WHOLE, message, fix)


def _without_effect(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    for key in options.values:
        option = find_option(key)
        if option is None or not option.effect:
            message = f"{key} is Paimon's own and has no effect here"
            yield option_violation(key, FaultCode.OPTION_WITHOUT_EFFECT, message, "remove it, or keep it for Paimon")


def _changelog(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Warn of the cost of a changelog producer, or of the time until its changes come."""
    producer, commits = options["changelog-producer"], options["full-compaction.delta-commits"] or 1
    warnings: dict[ChangelogProducer, tuple[FaultCode, str, str]] = {
        ChangelogProducer.LOOKUP: (
            FaultCode.MERGES_READ_OLDER_RUNS,
            "every merge looks its keys up in the older runs: it costs more as the table grows",
            "use full-compaction where changes may come later, or input where producers post every change themselves",
        ),
        ChangelogProducer.FULL_COMPACTION: (
            FaultCode.CHANGES_COME_LATE,
            f"changes come with full compactions only, after every {commits} merge(s), one for each key",
            "set full-compaction.delta-commits, or use lookup for changes at every merge",
        ),
        ChangelogProducer.INPUT: (
            FaultCode.CHANGELOG_NOT_REPAIRED,
            "the changelog is the posted records, not the changes of rows: parts of rows where records are parts",
            "use lookup or full-compaction unless producers post whole rows with their row kinds",
        ),
    }
    if producer in warnings:
        code, message, fix = warnings[producer]
        yield option_violation("changelog-producer", code, message, fix)


def _ignored_fields(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Engines that have no groups or functions ignore their options, as Paimon does."""
    engine = options.engine
    for group in options.groups:
        if engine is not MergeEngine.PARTIAL_UPDATE:
            fix = "set merge-engine = partial-update"
            yield option_violation(group.key, FaultCode.OPTION_WITHOUT_EFFECT, f"{engine} has no sequence groups", fix)
    if not has_functions(engine):
        for column, suffix in options.fields:
            if not FIELD_OPTIONS[suffix].of_engine(engine):
                message = f"{engine} has no aggregate functions"
                fix = "set merge-engine = aggregation"
                yield option_violation(f"fields.{column}.{suffix}", FaultCode.OPTION_WITHOUT_EFFECT, message, fix)


def _positions(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """A position from events that is no sequence: late and repeated events overwrite all the same."""
    ordering = {*options["sequence.field"], *(name for group in options.groups for name in group.ordering)}
    for name, suffix in options.fields:
        if suffix == "from-event" and name not in ordering and options.engine is not MergeEngine.FIRST_ROW:
            message = f"{name!r} is filled with the position of events, but orders nothing: a late event overwrites"
            fix = f"set sequence.field = {name}, or make {name} the ordering field of a sequence group"
            yield option_violation(field_key(name, suffix), FaultCode.POSITION_ORDERS_NOTHING, message, fix)


def _length_of_one(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """``VARCHAR`` and ``VARBINARY`` without a length hold one character or byte, which is rarely meant."""
    for place, column in enumerate(schema.columns):
        for inner in walk_types(column.type):
            if inner.kind in (Kind.VARCHAR, Kind.VARBINARY) and inner.length == 1:
                message = f"column {column.name!r} has the type {inner}, which holds one character or byte"
                fix = "alter the column to a longer length, or to STRING or BYTES"
                pointer = f"/schema/fields/{place}/type"
                yield Violation(pointer, FaultCode.LENGTH_OF_ONE, message, fix, column=column.name)
                break


def _horizon(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Logs without an end although the table has a horizon."""
    rules = compile_plan(schema).rules
    yield from horizon_warnings(rules, options["sequence.late-horizon"])


CHECKS: tuple[Check, ...] = (
    _counting_groups,
    _counted_events,
    _unordered_events,
    _ungrouped,
    _never_null,
    _absent_columns,
    _whole_groups,
    _without_effect,
    _changelog,
    _ignored_fields,
    _positions,
    _length_of_one,
    _horizon,
)
