"""Table options: the keys that Keyfold knows, how their text is read, and what each means (Paimon's keys)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from app.core.errors import About, FaultCode, Violation
from app.core.table.option_values import (
    boolean,
    count,
    duration,
    names,
    one_of,
    percent,
    size,
    time_format,
    whole_number,
)
from app.core.table.schema import TableSchema, escape_pointer


class MergeEngine(StrEnum):
    """Values of ``merge-engine`` (merge-semantics §2)."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class SortOrder(StrEnum):
    """Values of ``sequence.field.sort-order`` (§3.1)."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class ExpirationStrategy(StrEnum):
    """Values of ``partition.expiration-strategy``."""

    VALUES_TIME = "values-time"  # the time that the partition's values say
    UPDATE_TIME = "update-time"  # when the newest of its records was merged


class ChangelogProducer(StrEnum):
    """Values of ``changelog-producer`` (§8)."""

    NONE = "none"
    INPUT = "input"
    FULL_COMPACTION = "full-compaction"
    LOOKUP = "lookup"


@dataclass(frozen=True)
class Option:
    """One option key: how its text is read (``parse`` raises ValueError with the fix), its default, what it means."""

    key: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str


_TABLE_OPTIONS = (
    Option("merge-engine", one_of(MergeEngine), MergeEngine.DEDUPLICATE, "how records of one key fold together"),
    Option("sequence.field", names, (), "columns that order the records of a key, before arrival"),
    Option("sequence.field.sort-order", one_of(SortOrder), SortOrder.ASCENDING, "which sequence wins"),
    Option("sequence.auto-padding", names, (), "precision and row-kind flag of the sequence field"),
    Option("sequence.snapshot-ordering", boolean, False, "commit order decides, as arrival does here"),
    Option("rowkind.field", str.strip, None, "the column that holds the row kind"),
    Option("ignore-delete", boolean, False, "drop -U and -D records"),
    Option("ignore-update-before", boolean, False, "drop -U records"),
    Option("partial-update.remove-record-on-delete", boolean, False, "a -D removes the row"),
    Option(
        "partial-update.remove-record-on-sequence-group",
        names,
        (),
        "a -D that one of these groups accepts removes the row",
    ),
    Option("aggregation.remove-record-on-delete", boolean, False, "a -D removes the row"),
    Option("changelog-producer", one_of(ChangelogProducer), ChangelogProducer.NONE, "how the changelog is made"),
    Option("primary-key", names, (), "the primary key, where the schema does not declare it"),
    Option("primary-key.nullable", boolean, False, "key columns may be null"),
    Option(
        "merge.max-staleness", duration, timedelta(seconds=1), "age of the oldest staged batch at which a merge starts"
    ),
    Option("merge.max-staged-rows", count, 1_000_000, "staged records that start a merge at once"),
    Option("snapshot.num-retained.min", count, 10, "snapshots that are kept however old they are"),
    Option("snapshot.num-retained.max", count, 2**31 - 1, "snapshots that are kept at most"),
    Option("snapshot.time-retained", duration, timedelta(hours=1), "how long a snapshot is kept"),
    Option("num-sorted-run.compaction-trigger", count, 5, "runs that start a compaction"),
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
        one_of(ExpirationStrategy),
        ExpirationStrategy.VALUES_TIME,
        "what the age of a partition is counted from",
    ),
    Option("partition.timestamp-pattern", str.strip, None, "a partition's time, of its columns: $day $hour:00:00"),
    Option("partition.timestamp-formatter", time_format, None, "how that text is read: yyyy-MM-dd HH:mm:ss"),
    Option("target-file-size", size, 128 * 1024**2, "size of a data file at which a run gets more of them"),
    Option("full-compaction.delta-commits", count, None, "merges after which all runs are combined"),
    Option("changelog-producer.row-deduplicate", boolean, False, "no changelog of rows that stay equal"),
    Option("changelog-producer.row-deduplicate-ignore-fields", names, (), "columns that do not count as a change"),
    Option("tombstone.time-retained", duration, None, "how long a deleted row is remembered, for late records"),
    Option("tag.default-time-retained", duration, None, "how long a tag is kept that does not say so itself"),
)
# Paimon's keys for its own files and writers: valid definitions keep working, and Keyfold lays out files by itself.
_WITHOUT_EFFECT = (
    Option("bucket", whole_number, -1, "Paimon's bucket count"),
    Option("bucket-key", names, (), "Paimon's bucket key"),
    Option("write-only", boolean, False, "Paimon's switch for compaction in the writer"),
    Option("deletion-vectors.enabled", boolean, False, "Paimon's deletion vectors"),
    Option("streaming-read-overwrite", boolean, False, "Paimon's streaming reads of overwrites"),
    Option("pk-clustering-override", boolean, False, "Paimon's clustering of primary-key tables"),
    Option("force-lookup", boolean, False, "Paimon's compaction by lookup"),
    *(
        Option(key, str.strip, None, "Paimon's own")
        for key in (
            "auto-create", "branch", "cache-page-size", "file.block-size", "file.compression", "file.format",
            "lookup-wait", "num-levels", "num-sorted-run.stop-trigger", "page-size", "partition", "read.batch-size",
            "type", "write-buffer-size", "write-buffer-spillable", "write-manifest-cache",
            "write-max-writers-to-spill",
        )
    ),
)  # fmt: skip
# Families of Paimon's keys that say how its readers, writers and file formats work.
_FOREIGN_FAMILIES = (
    "changelog-file.", "changelog-producer.", "changelog.",
    "commit.", "compaction.", "consumer.", "cross-partition-upsert.", "data-file.",
    "deletion-vector.", "dynamic-bucket.", "file-index.", "file.compression.", "file.format.",
    "local-merge-buffer-size", "lookup.", "manifest.", "metadata.", "metastore.", "orc.", "parquet.", "partition.",
    "record-level.", "scan.", "sink.", "snapshot.", "sort-", "source.", "spill-", "streaming-read-", "tag.",
    "write-buffer-", "zorder.",
)  # fmt: skip
# Families that hold options which Keyfold carries out: here only what Paimon has is taken, for anything else is likely
# one of those misspelt. (Paimon's core and Flink options of 2026, and older spellings that it still reads.)
OWN_FAMILIES = (
    "changelog-file.",
    "changelog-producer.",
    "changelog.",
    "compaction.",
    "partition.",
    "snapshot.",
    "tag.",
)
PAIMONS_OWN = frozenset((
    "changelog-file.compression", "changelog-file.format", "changelog-file.prefix", "changelog-file.stats-mode",
    "changelog-producer.compaction-interval", "changelog-producer.lookup-wait", "changelog.num-retained.max",
    "changelog.num-retained.min", "changelog.precommit-compact", "changelog.precommit-compact.buffer-size",
    "changelog.precommit-compact.thread-num", "changelog.time-retained", "compaction.bucket-distribution-strategy",
    "compaction.delete-ratio-threshold", "compaction.early-max.file-num", "compaction.file-num-limit",
    "compaction.force-rewrite-all-files", "compaction.force-up-level-0", "compaction.incremental-size-threshold",
    "compaction.max.file-num", "compaction.min.file-num", "compaction.offpeak-ratio", "compaction.offpeak.end.hour",
    "compaction.offpeak.start.hour", "compaction.optimization-interval", "compaction.skip-expired-partitions",
    "compaction.small-file-ratio", "compaction.total-size-threshold", "partition.default-name",
    "partition.end-input-to-done", "partition.expiration-batch-size", "partition.expiration-check-interval",
    "partition.expiration-max-num", "partition.idle-time-to-done", "partition.idle-time-to-report-statistic",
    "partition.legacy-name", "partition.mark-done-action", "partition.mark-done-action.custom.class",
    "partition.mark-done-action.http.params", "partition.mark-done-action.http.url", "partition.mark-done-action.mode",
    "partition.mark-done-when-end-input", "partition.mark-done.recover-from-state", "partition.sink-strategy",
    "partition.time-interval", "partition.timestamp-format.strict", "snapshot.clean-empty-directories",
    "snapshot.expire.clean-empty-directories", "snapshot.expire.execution-mode", "snapshot.expire.limit",
    "snapshot.ignore-empty-commit", "snapshot.watermark-idle-timeout", "tag.automatic-completion",
    "tag.automatic-creation", "tag.batch.customized-name", "tag.callbacks", "tag.create-success-file",
    "tag.creation-delay", "tag.creation-period", "tag.creation-period-duration", "tag.num-retained-max",
    "tag.period-formatter", "tag.time-expire-enabled",
))  # fmt: skip
_PAIMONS_CALLBACK = re.compile(r"tag\.callback\..+\.param")
TABLE_OPTIONS: Mapping[str, Option] = {option.key: option for option in (*_TABLE_OPTIONS, *_WITHOUT_EFFECT)}
WITHOUT_EFFECT = frozenset(option.key for option in _WITHOUT_EFFECT)
FALLBACK_KEYS: Mapping[str, str] = {
    f"{engine}.ignore-delete": "ignore-delete" for engine in ("first-row", "deduplicate", "partial-update")
}

# Options of one column: fields.<column>.<suffix>
_FIELD_OPTIONS = (
    Option("sequence-group", names, (), "the columns that the named ordering fields protect"),
    Option("aggregate-function", str.strip, None, "the aggregate function of the column"),
    Option("ignore-retract", boolean, False, "retracts leave the column unchanged"),
    Option("default-value", str, None, "what a null of the final row is shown as"),
    Option("distinct", boolean, False, "keep one of equal elements"),
    Option("list-agg-delimiter", str, ",", "the text between the values of listagg"),
    Option("nested-key", names, (), "the fields that tell the elements of a nested table apart"),
    Option("nested-key-null-strategy", str.strip, "merge", "what to do with a null nested key"),
    Option("nested-sequence-field", names, (), "the fields that order the elements of one nested key"),
    Option("count-limit", count, None, "the most elements of a nested table"),
    Option("ts-field", str.strip, None, "the field of the map's row that holds its time"),
)
FIELD_OPTIONS: Mapping[str, Option] = {option.key: option for option in _FIELD_OPTIONS}
DEFAULT_FUNCTION = "fields.default-aggregate-function"


@dataclass(frozen=True)
class SequenceGroup:
    """Ordering fields and the columns they protect (§4.1); ``key`` is the option that declares it."""

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class TableOptions:
    """A table's options as typed values. ``fields`` holds the options of single columns: (column, suffix) to text."""

    values: Mapping[str, Any]
    groups: tuple[SequenceGroup, ...] = ()
    fields: Mapping[tuple[str, str], str] = field(default_factory=dict)
    default_function: str | None = None

    def __getitem__(self, key: str) -> Any:
        return self.values[key] if key in self.values else TABLE_OPTIONS[key].default

    def given(self, key: str) -> bool:
        """Whether the table sets the option."""
        return key in self.values

    def of_field(self, column: str, suffix: str) -> Any:
        """The value of ``fields.<column>.<suffix>``, its default if it is not set."""
        text = self.fields.get((column, suffix))
        return FIELD_OPTIONS[suffix].default if text is None else FIELD_OPTIONS[suffix].parse(text)

    def of_function(self, column: str) -> dict[str, Any]:
        """All options of a column, parsed; ``given`` holds the suffixes that the table sets."""
        parsed = {suffix: self.of_field(column, suffix) for suffix in FIELD_OPTIONS}
        return parsed | {"given": {suffix for named, suffix in self.fields if named == column}}

    @property
    def engine(self) -> MergeEngine:
        """The merge engine."""
        engine: MergeEngine = self["merge-engine"]
        return engine


def field_key(column: str, suffix: str) -> str:
    """The key of a column's option."""
    return f"fields.{column}.{suffix}"


def option_violation(key: str, code: FaultCode, message: str, fix: str, *columns: str) -> Violation:
    """A fault of the option ``key``; ``columns`` are those that it cannot go with."""
    return Violation(f"/options/{escape_pointer(key)}", code, message, fix, about=About(key, columns))


def parse_options(schema: TableSchema) -> tuple[TableOptions, list[Violation]]:
    """The options of ``schema`` as typed values, and every key or value that cannot be read."""
    faults: list[Violation] = []
    values: dict[str, Any] = {}
    groups: list[SequenceGroup] = []
    fields: dict[tuple[str, str], str] = {}
    default_function = None
    for key, text in schema.options.items():
        if key == DEFAULT_FUNCTION:
            default_function = text.strip()
        elif key == "fields" or key.startswith("fields."):
            _read_field_option(schema, key, text, groups, fields, faults)
        else:
            _read_table_option(key, text, values, faults)
    return TableOptions(values, tuple(groups), fields, default_function), faults


def find_option(key: str) -> Option | None:
    """The option called ``key``, also by a fall-back key or as one of Paimon's own; None if there is none."""
    known = TABLE_OPTIONS.get(FALLBACK_KEYS.get(key, key))
    if known is None and key.startswith(_FOREIGN_FAMILIES):
        return Option(key, str.strip, None, "Paimon's own")
    return known


def misspelt_options(keys: Iterable[str]) -> list[Violation]:
    """The ``keys`` that are neither Keyfold's nor Paimon's in a family of which Keyfold carries options out.

    Asked where an option is set: a table that has such an option already goes on without it.
    """
    known = {*TABLE_OPTIONS, *PAIMONS_OWN}
    strange = [
        key
        for key in keys
        if key.startswith(OWN_FAMILIES) and key not in known and not _PAIMONS_CALLBACK.fullmatch(key)
    ]
    return [_unknown_option(key) for key in strange]


def _unknown_option(key: str) -> Violation:
    known = [*TABLE_OPTIONS, *FALLBACK_KEYS, DEFAULT_FUNCTION, *PAIMONS_OWN]
    return option_violation(key, FaultCode.UNKNOWN_OPTION, f"unknown option {key!r}", _did_you_mean(key, known))


def has_effect(key: str) -> bool:
    """Whether Keyfold does anything with a table option."""
    return key in TABLE_OPTIONS and key not in WITHOUT_EFFECT


def _read_table_option(key: str, text: str, values: dict[str, Any], faults: list[Violation]) -> None:
    option = find_option(key)
    if option is None:
        faults.append(_unknown_option(key))
        return
    try:
        value = option.parse(text)
    except ValueError as error:
        message = f"option {key} has the value {text!r}"
        faults.append(option_violation(key, FaultCode.ILLEGAL_OPTION_VALUE, message, str(error)))
        return
    if key == option.key or option.key not in values:
        values[option.key] = value


def _did_you_mean(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else "remove it"


def _read_field_option(
    schema: TableSchema,
    key: str,
    text: str,
    groups: list[SequenceGroup],
    fields: dict[tuple[str, str], str],
    faults: list[Violation],
) -> None:
    """``fields.<columns>.<suffix>`` (§6.2.5, §6.2.6)."""
    segments = key.split(".")
    columns = names(segments[1]) if len(segments) > 1 else ()
    suffix = segments[-1]
    if len(segments) != 3 or not columns:
        fix = (
            f"write fields.<column>.{suffix}"
            if len(segments) < 3
            else "an option names a top-level column: fields.<column>.<option>"
        )
        faults.append(option_violation(key, FaultCode.MALFORMED_OPTION, f"option {key!r} names no column", fix))
        return
    for name in columns:
        if name not in schema.by_name:
            fix = _did_you_mean(name, list(schema.by_name))
            faults.append(
                option_violation(
                    key, FaultCode.UNKNOWN_COLUMN, f"option {key!r} names the unknown column {name!r}", fix, name
                )
            )
    if suffix not in FIELD_OPTIONS:
        hint = difflib.get_close_matches(suffix, FIELD_OPTIONS, n=1)
        fix = f"did you mean fields.{segments[1]}.{hint[0]}?" if hint else f"known: {', '.join(FIELD_OPTIONS)}"
        faults.append(option_violation(key, FaultCode.UNKNOWN_OPTION, f"unknown option {key!r}", fix))
    elif suffix == "sequence-group":
        groups.append(SequenceGroup(columns, names(text), key))
    elif len(columns) > 1:
        faults.append(
            option_violation(
                key, FaultCode.MALFORMED_OPTION, f"option {key!r} names several columns", "write one option a column"
            )
        )
    else:
        _check_field_value(key, suffix, text, faults)
        fields[columns[0], suffix] = text


def _check_field_value(key: str, suffix: str, text: str, faults: list[Violation]) -> None:
    try:
        FIELD_OPTIONS[suffix].parse(text)
    except ValueError as error:
        faults.append(
            option_violation(key, FaultCode.ILLEGAL_OPTION_VALUE, f"option {key} has the value {text!r}", str(error))
        )
