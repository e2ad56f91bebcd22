"""Modes of a table: changelogs, buckets, partitions, what Paimon does with files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.core.errors import FaultCode, Violation
from app.core.table.options.entries import TABLE_OPTIONS, ChangelogProducer, MergeEngine
from app.core.table.options.parsed import TableOptions, option_violation
from app.core.table.schema import TableSchema


def _producers(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation where first-row has a changelog producer that it cannot serve."""
    producer = options["changelog-producer"]
    if options.engine is MergeEngine.FIRST_ROW and producer not in (ChangelogProducer.NONE, ChangelogProducer.LOOKUP):
        message = f"first-row cannot have changelog-producer {producer}"
        yield option_violation("changelog-producer", FaultCode.CONTRADICTING_OPTIONS, message, "use none or lookup")


def _modes(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation for each two modes of Paimon's that contradict each other; none has an effect here."""
    producer, engine = options["changelog-producer"], options.engine
    vectors, overwrite, deltas = "deletion-vectors.enabled", "streaming-read-overwrite", "full-compaction.delta-commits"
    contradictions = (
        (vectors, options[vectors] and producer is ChangelogProducer.FULL_COMPACTION, f"changelog-producer {producer}"),
        (vectors, options[vectors] and engine is MergeEngine.FIRST_ROW, "first-row"),
        (
            overwrite,
            options[overwrite] and producer in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION),
            f"changelog-producer {producer}",
        ),
        (deltas, options.given(deltas) and producer is ChangelogProducer.LOOKUP, f"changelog-producer {producer}"),
    )
    for key, contradicts, what in contradictions:
        if contradicts:
            yield option_violation(
                key, FaultCode.CONTRADICTING_OPTIONS, f"{key} cannot be combined with {what}", "remove one of the two"
            )
    yield from _clustering(schema, options)


def _clustering(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    for name in options["clustering.columns"]:
        if name not in schema.by_name:
            message = f"clustering column {name!r} is not a column"
            yield option_violation("clustering.columns", FaultCode.UNKNOWN_COLUMN, message, "name a column", name)
    key = "pk-clustering-override"
    if not options[key]:
        return
    if options.engine not in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW):
        yield option_violation(
            key, FaultCode.CONTRADICTING_OPTIONS, f"{key} cannot be combined with {options.engine}", "remove it"
        )
    if options["sequence.field"]:
        yield option_violation(
            key,
            FaultCode.CONTRADICTING_OPTIONS,
            f"{key} cannot be combined with sequence.field",
            "remove one of the two",
        )
    if options["changelog-producer"] not in (ChangelogProducer.NONE, ChangelogProducer.INPUT):
        message = f"{key} cannot be combined with changelog-producer {options['changelog-producer']}"
        yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, message, "use none or input")


def _buckets(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation for each fault of ``bucket`` and ``bucket-key``."""
    bucket, keys = options["bucket"], options["bucket-key"]
    if bucket < 1 and bucket not in (-1, -2):
        yield option_violation(
            "bucket", FaultCode.ILLEGAL_OPTION_VALUE, f"bucket is {bucket}", "write a count from 1, or -1, or -2"
        )
    if keys and options.given("bucket") and bucket == -1:
        message = "bucket-key cannot be combined with bucket = -1"
        yield option_violation(
            "bucket-key", FaultCode.CONTRADICTING_OPTIONS, message, "remove bucket-key or set a bucket count"
        )
    for name in keys:
        if name not in schema.by_name:
            yield option_violation(
                "bucket-key", FaultCode.UNKNOWN_COLUMN, f"bucket key {name!r} is not a column", "name a column", name
            )
        elif not schema.by_name[name].type.legal_key:
            message = f"bucket key {name!r} is {schema.by_name[name].type.base_sql}"
            yield option_violation("bucket-key", FaultCode.ILLEGAL_KEY_TYPE, message, "use a scalar column", name)


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


def _absent_columns(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Where a record is the whole row, a column that it does not name has no other value to keep."""
    key = "record.absent-columns"
    if schema.absent_unchanged and not TABLE_OPTIONS[key].of_engine(options.engine):
        message = f"{options.engine} keeps whole records: a column that a record does not name is null in its row"
        fix = "set merge-engine = partial-update, or remove record.absent-columns"
        yield option_violation(key, FaultCode.CONTRADICTING_OPTIONS, message, fix)


MODE_CHECKS = (_absent_columns, _partition_expiry, _producers, _modes, _buckets)
