"""The options that Keyfold knows: one entry each, with everything there is to say about it (Paimon's keys).

What treats options alike is a loop over these entries: reading them, what may change on a table with rows, what a
renamed column does to them, what has no effect, which ones the merge plan may read, the tables of docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from app.core.table.options.event_position import EventPosition
from app.core.table.options.option import Change, Names, Option
from app.core.table.options.paimon import is_foreign
from app.core.table.options.values import (
    OneOf,
    boolean,
    count,
    duration,
    horizon,
    names,
    percent,
    size,
    time_format,
)
from app.core.table.options.without_effect import WITHOUT_EFFECT


class MergeEngine(StrEnum):
    """Values of ``merge-engine``."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class SortOrder(StrEnum):
    """Values of ``sequence.field.sort-order``."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class ExpirationStrategy(StrEnum):
    """Values of ``partition.expiration-strategy``."""

    VALUES_TIME = "values-time"  # the time that the partition's values say
    UPDATE_TIME = "update-time"  # when the newest of its records was merged


class ChangelogProducer(StrEnum):
    """Values of ``changelog-producer``."""

    NONE = "none"
    INPUT = "input"
    FULL_COMPACTION = "full-compaction"
    LOOKUP = "lookup"


class AbsentColumns(StrEnum):
    """Values of ``record.absent-columns``: the meaning of a column that a record does not name."""

    NULL = "null"  # as if it were null (Paimon's meaning)
    UNCHANGED = "unchanged"  # nothing


class Consistency(StrEnum):
    """Values of ``lookup.consistency``: what a lookup sees."""

    MERGED = "merged"  # the current snapshot
    LATEST = "latest"  # the snapshot and the batches staged on top of it: read your writes


class Integers(StrEnum):
    """Values of ``lookup.integers``: how answers spell BIGINT."""

    NUMBER = "number"
    TEXT = "text"


# first-row keeps the first record of any sequence; the last two fold each column by itself
_ORDERED = (MergeEngine.DEDUPLICATE, MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)
_BY_COLUMN = (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)
# Options of earlier releases, and why they are gone. A stored table that has one is read without it.
REMOVED_OPTIONS: Mapping[str, str] = {
    "sequence.late-records": "a refusal cannot see what other requests bring; T/lateness counts late records",
    "twin.publish": "other engines read the files as Iceberg or Delta: set iceberg.publish or delta.publish",
}
DEFAULT_FUNCTION = "fields.default-aggregate-function"
_TABLE_OPTIONS = (
    Option(
        "merge-engine",
        OneOf(MergeEngine),
        MergeEngine.DEDUPLICATE,
        "how records of one key fold together",
        folds=True,
        change=Change.NEVER,
    ),
    Option(
        "sequence.field",
        names,
        (),
        "columns that order the records of a key, before arrival",
        folds=True,
        names=Names.COLUMNS,
        engines=_ORDERED,
    ),
    Option(
        "sequence.field.sort-order",
        OneOf(SortOrder),
        SortOrder.ASCENDING,
        "which sequence wins",
        folds=True,
        engines=_ORDERED,
    ),
    Option(
        "sequence.auto-padding",
        names,
        (),
        "precision and row-kind flag of the sequence field",
        folds=True,
        engines=_ORDERED,
    ),
    Option(
        "sequence.late-horizon",
        horizon,
        None,
        "how far behind the latest sequence a record may be; logs ignore older records, so that they can be folded",
        folds=True,
        engines=_BY_COLUMN,
    ),
    Option(
        "sequence.snapshot-ordering", boolean, False, "commit order decides, as arrival does here", change=Change.NEVER
    ),
    Option(
        "rowkind.field", str.strip, None, "the column that holds the row kind", change=Change.NEVER, names=Names.COLUMN
    ),
    Option(
        "ignore-delete",
        boolean,
        False,
        "drop -U and -D records",
        folds=True,
        change=Change.TURNED_ON,
        aliases=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
    ),
    Option("ignore-update-before", boolean, False, "drop -U records", folds=True, change=Change.TURNED_ON),
    Option(
        "partial-update.remove-record-on-delete",
        boolean,
        False,
        "a -D removes the row",
        folds=True,
        change=Change.NEVER,
        engines=(MergeEngine.PARTIAL_UPDATE,),
    ),
    Option(
        "partial-update.remove-record-on-sequence-group",
        names,
        (),
        "a -D that one of these groups accepts removes the row",
        folds=True,
        change=Change.NEVER,
        names=Names.COLUMNS,
        engines=(MergeEngine.PARTIAL_UPDATE,),
    ),
    Option(
        "record.absent-columns",
        OneOf(AbsentColumns),
        AbsentColumns.NULL,
        "the meaning of a column that a record does not name: null, or unchanged",
        folds=True,
        change=Change.TURNED_ON,
        engines=_BY_COLUMN,
    ),
    Option(
        "events.source",
        names,
        (),
        "source tables whose change events this table takes, such as inventory.orders; default: the one of its name",
    ),
    Option(
        "events.truncate-time",
        boolean,
        False,
        "cut the digits of a change event's times that the column cannot hold, instead of refusing the event",
    ),
    Option(
        "aggregation.remove-record-on-delete",
        boolean,
        False,
        "a -D removes the row",
        folds=True,
        change=Change.NEVER,
        engines=(MergeEngine.AGGREGATION,),
    ),
    Option(
        DEFAULT_FUNCTION,
        str.strip,
        None,
        "the aggregate function of columns without one of their own",
        folds=True,
        engines=_BY_COLUMN,
    ),
    Option("changelog-producer", OneOf(ChangelogProducer), ChangelogProducer.NONE, "how the changelog is made"),
    Option(
        "primary-key",
        names,
        (),
        "the primary key, where the schema does not declare it",
        change=Change.NEVER,
        instead="create a new table with the other key and post the records there",
        names=Names.COLUMNS,
    ),
    Option("primary-key.nullable", boolean, False, "key columns may be null", change=Change.NEVER),
    Option(
        "merge.max-staleness", duration, timedelta(seconds=1), "age of the oldest staged batch at which a merge starts"
    ),
    Option(
        "lookup.consistency",
        OneOf(Consistency),
        None,
        "consistency of lookups that set none: latest, or merged (the snapshot only)",
    ),
    Option("lookup.integers", OneOf(Integers), Integers.NUMBER, "how answers spell BIGINT: number, or text"),
    Option("merge.max-staged-rows", count, 1_000_000, "staged records that start a merge at once"),
    Option("snapshot.num-retained.min", count, 10, "snapshots that are kept however old they are"),
    Option("snapshot.num-retained.max", count, 2**31 - 1, "snapshots that are kept at most"),
    Option("snapshot.time-retained", duration, timedelta(hours=1), "how long a snapshot is kept"),
    Option(
        "catalog.history-retained",
        duration,
        timedelta(days=7),
        "how long merged batches, and merges and compactions that are over, are listed",
    ),
    Option(
        "history.time-retained",
        duration,
        timedelta(days=1),
        "how long the records of merged batches are kept, to explain rows; 0: not at all",
    ),
    Option("history.max-size", size, 1024**3, "most bytes of such records to keep; the oldest go first"),
    Option("num-sorted-run.compaction-trigger", count, 5, "runs that start a compaction"),
    Option("num-sorted-run.stop-trigger", count, None, "runs at which merges wait for a compaction"),
    Option(
        "compaction.max-size-amplification-percent",
        percent,
        200,
        "size of the newer runs, in percent of the oldest, at which all are combined",
    ),
    Option(
        "compaction.size-ratio", percent, 1, "percent by which the next older run may be larger and is combined too"
    ),
    Option("partition.expiration-time", duration, None, "age at which a partition is dropped"),
    Option(
        "partition.expiration-strategy",
        OneOf(ExpirationStrategy),
        ExpirationStrategy.VALUES_TIME,
        "the start of a partition's age",
    ),
    Option("partition.timestamp-pattern", str.strip, None, "a partition's time, from its columns: $day $hour:00:00"),
    Option("partition.timestamp-formatter", time_format, None, "how that text is read: yyyy-MM-dd HH:mm:ss"),
    Option("target-file-size", size, 128 * 1024**2, "file size above which a run is split into more files"),
    Option("full-compaction.delta-commits", count, None, "merges after which all runs are combined"),
    Option("changelog-producer.row-deduplicate", boolean, False, "no changelog of rows that stay equal"),
    Option(
        "changelog-producer.row-deduplicate-ignore-fields",
        names,
        (),
        "columns that do not count as a change",
        names=Names.COLUMNS,
    ),
    Option(
        "tombstone.time-retained",
        duration,
        None,
        "how long a deleted row is remembered, for late records",
        engines=_ORDERED,
    ),
    Option("tag.default-time-retained", duration, None, "how long a tag without its own time is kept"),
    Option("delta.publish", boolean, False, "write a Delta log: full compactions, or merges with looked-up changes"),
    Option(
        "delta.publish.interval",
        duration,
        None,
        "how far the Delta log may lag until a merge or a full compaction is published",
    ),
    Option(
        "delta.log-retained", duration, timedelta(hours=1), "how long a version of the Delta log is kept after the next"
    ),
    Option(
        "iceberg.publish", boolean, False, "write Iceberg snapshots: full compactions, or merges with looked-up changes"
    ),
    Option(
        "iceberg.publish.interval",
        duration,
        None,
        "how far the Iceberg snapshot may lag until a merge or a full compaction is published",
    ),
    Option(
        "iceberg.snapshots-retained", duration, timedelta(hours=1), "time an Iceberg snapshot is kept after the next"
    ),
)
TABLE_OPTIONS: Mapping[str, Option] = {option.key: option for option in (*_TABLE_OPTIONS, *WITHOUT_EFFECT)}
FALLBACK_KEYS: Mapping[str, str] = {alias: option.key for option in _TABLE_OPTIONS for alias in option.aliases}

# Options of one column: fields.<column>.<suffix>
_FIELD_OPTIONS = (
    Option(
        "sequence-group",
        names,
        (),
        "the columns that the named ordering fields protect",
        folds=True,
        names=Names.COLUMNS,
        engines=(MergeEngine.PARTIAL_UPDATE,),
    ),
    Option(
        "aggregate-function", str.strip, None, "the aggregate function of the column", folds=True, engines=_BY_COLUMN
    ),
    Option("ignore-retract", boolean, False, "retracts leave the column unchanged", folds=True, engines=_BY_COLUMN),
    Option("default-value", str, None, "what a null of the final row is shown as"),
    Option("from-event", OneOf(EventPosition), None, "the position of the change event in its source"),
    Option("distinct", boolean, False, "keep one of equal elements", folds=True, of_function=True, engines=_BY_COLUMN),
    Option(
        "list-agg-delimiter",
        str,
        ",",
        "the text between the values of listagg",
        folds=True,
        of_function=True,
        engines=_BY_COLUMN,
    ),
    Option(
        "nested-key",
        names,
        (),
        "the fields that identify an element of a nested table",
        folds=True,
        of_function=True,
        names=Names.FIELDS,
        engines=_BY_COLUMN,
    ),
    Option(
        "nested-key-null-strategy",
        str.strip,
        "merge",
        "what to do with a null nested key",
        folds=True,
        of_function=True,
        engines=_BY_COLUMN,
    ),
    Option(
        "nested-sequence-field",
        names,
        (),
        "the fields that order the elements of one nested key",
        folds=True,
        of_function=True,
        names=Names.FIELDS,
        engines=_BY_COLUMN,
    ),
    Option(
        "count-limit",
        count,
        None,
        "the most elements of a nested table",
        folds=True,
        of_function=True,
        engines=_BY_COLUMN,
    ),
    Option(
        "ts-field",
        str.strip,
        None,
        "the field of the map's row that holds its time",
        folds=True,
        of_function=True,
        names=Names.FIELD,
        engines=_BY_COLUMN,
    ),
)
FIELD_OPTIONS: Mapping[str, Option] = {option.key: option for option in _FIELD_OPTIONS}


def option_of(key: str) -> Option | None:
    """Return the option that ``key`` sets, of the table or of a column; None if there is none."""
    if key != DEFAULT_FUNCTION and key.startswith("fields."):
        return FIELD_OPTIONS.get(key.rsplit(".", 1)[-1])
    return find_option(key)


def find_option(key: str) -> Option | None:
    """Return the option called ``key``, also by an older key or as one of Paimon's own; None if there is none."""
    known = TABLE_OPTIONS.get(FALLBACK_KEYS.get(key, key))
    if known is None and is_foreign(key):
        return Option(key, str.strip, None, "Paimon's own", effect=False)
    return known
