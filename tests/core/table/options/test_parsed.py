"""Options are read into typed values; what cannot be read is named with the fix."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.options.entries import (
    DEFAULT_FUNCTION,
    FALLBACK_KEYS,
    FIELD_OPTIONS,
    REMOVED_OPTIONS,
    TABLE_OPTIONS,
    AbsentColumns,
    ChangelogProducer,
    Consistency,
    ExpirationStrategy,
    Integers,
    MergeEngine,
    SortOrder,
)
from app.core.table.options.paimon import FEATURES
from app.core.table.options.parsed import SequenceGroup
from tests.core.tables import faults, table, violations

FLAGS = (
    *("sequence.snapshot-ordering", "partial-update.remove-record-on-delete", "primary-key.nullable"),
    *("delta.publish", "iceberg.publish", "events.truncate-time", "write-only", "deletion-vectors.enabled"),
    *("streaming-read-overwrite", "changelog-producer.row-deduplicate", "deletion-vectors.bitmap64"),
    *("pk-clustering-override", "force-lookup"),
)
TIMES = (
    *("snapshot.time-retained", "tombstone.time-retained", "catalog.history-retained"),
    *("tag.default-time-retained", "delta.publish.interval", "delta.log-retained"),
    *("iceberg.publish.interval", "iceberg.snapshots-retained", "partition.expiration-time"),
)
AGES = (
    *(("500 ms", 0.5), ("250", 0.25), ("1.5h", 5400), ("2 Days", 172_800), ("10 s", 10), ("10s", 10)),
    *(("1 h", 3600), ("1 d", 86_400), ("10 seconds", 10), ("5 min", 300)),
)
SIZES = (("64 mb", 64 * 1024**2), ("1 KB", 1024), ("1000", 1000), ("2g", 2 * 1024**3))
# (option, its text, its value)
READ = [
    ("merge-engine", "partial-update", MergeEngine.PARTIAL_UPDATE),
    ("merge-engine", " Aggregation ", MergeEngine.AGGREGATION),
    ("sequence.field", " a , b,", ("a", "b")),
    ("sequence.field.sort-order", "DESCENDING", SortOrder.DESCENDING),
    ("sequence.auto-padding", "second-to-micro, row-kind-flag", ("second-to-micro", "row-kind-flag")),
    ("sequence.late-horizon", " 0 ", 0),
    ("sequence.late-horizon", "1000", 1000),
    ("sequence.late-horizon", "7 d", timedelta(days=7)),
    ("rowkind.field", " p ", "p"),
    ("ignore-delete", "TRUE", True),
    ("ignore-update-before", "False", False),
    ("partial-update.remove-record-on-sequence-group", "g,h", ("g", "h")),
    ("aggregation.remove-record-on-delete", " true ", True),
    (DEFAULT_FUNCTION, " sum ", "sum"),
    ("changelog-producer", "full-compaction", ChangelogProducer.FULL_COMPACTION),
    ("primary-key", "k,p", ("k", "p")),
    ("lookup.consistency", "Merged", Consistency.MERGED),
    ("lookup.integers", "TEXT", Integers.TEXT),
    ("merge.max-staged-rows", "1", 1),
    ("num-sorted-run.compaction-trigger", "+3", 3),
    ("num-sorted-run.stop-trigger", "8", 8),
    ("snapshot.num-retained.min", "2", 2),
    ("snapshot.num-retained.max", "20", 20),
    ("history.time-retained", "0", timedelta(0)),
    ("history.max-size", "10 mb", 10 * 1024**2),
    ("compaction.max-size-amplification-percent", "0", 0),
    ("compaction.size-ratio", "10", 10),
    ("partition.expiration-strategy", "Update-Time", ExpirationStrategy.UPDATE_TIME),
    ("partition.timestamp-pattern", " $day $hour:00 ", "$day $hour:00"),
    ("partition.timestamp-formatter", "yyyyMMdd'T'HH:mm:ss '100%'", "%Y%m%dT%H:%M:%S 100%%"),
    ("record.absent-columns", "Unchanged", AbsentColumns.UNCHANGED),
    ("events.source", "eu.orders, us.orders", ("eu.orders", "us.orders")),
    ("bucket", "-1", -1),
    ("bucket-key", "k", ("k",)),
    ("file.format", "orc", "orc"),
    ("file.compression", "lz4", "lz4"),
    ("write-buffer-size", "64 mb", "64 mb"),
    ("full-compaction.delta-commits", "3", 3),
    ("changelog-producer.row-deduplicate-ignore-fields", "a, b", ("a", "b")),
    ("clustering.columns", "a, b", ("a", "b")),
    *((key, "true", True) for key in FLAGS),
    *((key, "7 d", timedelta(days=7)) for key in TIMES),
    *(("merge.max-staleness", text, timedelta(seconds=number)) for text, number in AGES),
    *(("target-file-size", text, number) for text, number in SIZES),
]
WITHOUT_EFFECT = [key for key, option in TABLE_OPTIONS.items() if not option.effect]
TEXTS = {key for key in WITHOUT_EFFECT if TABLE_OPTIONS[key].parse is str.strip}


@pytest.mark.parametrize(("key", "text", "value"), READ)
def test_an_option_is_read_as_its_type(key: str, text: str, value: Any) -> None:
    options = (table({}) if key == "primary-key" else table({key: text})).parsed
    assert not options.faults
    assert key == "primary-key" or (options[key] == value and options.given(key))
    assert TABLE_OPTIONS[key].parse(text) == value


def test_the_list_above_holds_every_option() -> None:
    assert {key for key, _, _ in READ} | TEXTS == set(TABLE_OPTIONS)


@pytest.mark.parametrize("key", TABLE_OPTIONS)
def test_an_option_that_is_not_given_has_its_default_and_a_meaning(key: str) -> None:
    options = table().parsed
    assert not options.given(key)
    assert options[key] == TABLE_OPTIONS[key].default
    assert TABLE_OPTIONS[key].meaning
    assert TABLE_OPTIONS[key].key == key


UNREADABLE = {
    "merge-engine": ["", "dedupe", "partial_update"],
    "sequence.field.sort-order": ["desc"],
    "changelog-producer": ["all"],
    **{
        key: ["", "yes", "1", "truee"]
        for key in (
            *("sequence.snapshot-ordering", "ignore-delete", "ignore-update-before", "primary-key.nullable"),
            *("partial-update.remove-record-on-delete", "aggregation.remove-record-on-delete", "write-only"),
        )
    },
    "sequence.late-horizon": ["", "-1", "1.5", "late", "7 fortnights", "9223372036854775808"],
    "merge.max-staleness": ["", "soon", "1 fortnight", "-1 s", "1,5 s", "s"],
    "merge.max-staged-rows": ["", "0", "-1", "1.5", "many", "1e3"],
    "num-sorted-run.compaction-trigger": ["0", "x"],
    "num-sorted-run.stop-trigger": ["0", "x"],
    "bucket": ["", "x", "1.0"],
    "target-file-size": ["", "0", "0 mb", "1 pb", "large"],
    "compaction.size-ratio": ["", "-1", "1%"],
    "partition.expiration-strategy": ["", "never"],
    "partition.timestamp-formatter": ["YYYY-MM-dd", "yyyy-MMM"],
}


@pytest.mark.parametrize(("key", "text"), [(key, text) for key, texts in UNREADABLE.items() for text in texts])
def test_a_value_that_cannot_be_read_is_refused_with_what_to_write(key: str, text: str) -> None:
    found = violations(table({key: text}))
    assert [(v.pointer, v.code) for v in found if key in v.pointer] == [(f"/options/{key}", "illegal_option_value")]
    assert any(v.fix.startswith("write ") for v in found)


@given(st.sampled_from(sorted(TABLE_OPTIONS)), st.text(max_size=12))
def test_any_text_is_a_value_or_is_refused_with_what_to_write(key: str, text: str) -> None:
    try:
        TABLE_OPTIONS[key].parse(text)
        advice = "write"
    except ValueError as error:
        advice = str(error)
    assert "write" in advice


@pytest.mark.parametrize("digits", [20, 400, 5000])
@pytest.mark.parametrize("key", ["merge.max-staleness", "fields.l.count-limit"])
def test_numbers_beyond_all_measure_are_refused_like_other_illegal_values(key: str, digits: int) -> None:
    assert (key, "illegal_option_value") in faults(table({key: "9" * digits}))


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("merge-engin", "did you mean merge-engine?"),
        ("sequence.fields", "did you mean sequence.field?"),
        ("ignore-deletes", "did you mean ignore-delete?"),
        ("partial-update.ignore-deletes", "did you mean partial-update.ignore-delete?"),
        ("field.default-aggregate-function", "did you mean fields.default-aggregate-function?"),
        ("MERGE-ENGINE", "remove it"),
        ("", "remove it"),
        ("zzz", "remove it"),
        ("fields.a.aggregate-functions", "did you mean fields.a.aggregate-function?"),
        ("fields.a.sequence-groups", "did you mean fields.a.sequence-group?"),
        ("fields.a.zzz", "known: sequence-group, aggregate-function"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known_one(key: str, fix: str) -> None:
    (found,) = violations(table({key: "x"}))
    assert (found.code, found.fix.startswith(fix)) == ("unknown_option", True), found.fix


@pytest.mark.parametrize("key", REMOVED_OPTIONS)
def test_an_option_that_is_gone_is_refused_with_why(key: str) -> None:
    (found,) = violations(table({key: "x"}))
    assert (found.code, found.fix, REMOVED_OPTIONS[key] in found.message) == ("unknown_option", "remove it", True)


@pytest.mark.parametrize(
    "key", [f"{feature}.x" for feature in FEATURES] + ["blob-field", "fields.a.pk-vector.index.type"]
)
def test_an_option_of_what_keyfold_has_not_is_refused_with_what_it_is_of(key: str) -> None:
    (found,) = violations(table({key: "x"}))
    assert (found.code, found.fix) == ("unknown_option", "remove it")
    assert any(f"of Paimon's {feature}, which Keyfold does not have" in found.message for feature in FEATURES.values())


@pytest.mark.parametrize(
    ("key", "code", "fix"),
    [
        ("fields.aa.aggregate-function", "unknown_column", "did you mean a?"),
        ("fields.zzz.ignore-retract", "unknown_column", "remove it"),
        ("fields.a,zzz.sequence-group", "unknown_column", "remove it"),
        ("fields", "malformed_option", "write fields.<column>."),
        ("fields.sequence-group", "malformed_option", "write fields.<column>.sequence-group"),
        ("fields..aggregate-function", "malformed_option", "fields.<column>"),
        ("fields. , .aggregate-function", "malformed_option", "fields.<column>"),
        ("fields.r.y.aggregate-function", "malformed_option", "an option names a top-level column"),
        ("fields.a,b.aggregate-function", "malformed_option", "write one option a column"),
    ],
)
def test_an_option_of_no_column_or_of_several_is_refused(key: str, code: str, fix: str) -> None:
    found = violations(table({"merge-engine": "partial-update", key: "last_non_null_value"}))
    assert (f"/options/{key}", code) in [(v.pointer, v.code) for v in found]
    assert any(fix in v.fix for v in found if v.code == code)


@pytest.mark.parametrize(
    ("suffix", "text", "value"),
    [
        ("aggregate-function", " sum ", "sum"),
        ("ignore-retract", "TRUE", True),
        ("default-value", " 5", " 5"),
        ("distinct", "true", True),
        ("list-agg-delimiter", " ; ", " ; "),
        ("nested-key", "x, y", ("x", "y")),
        ("nested-key-null-strategy", " ignore ", "ignore"),
        ("nested-sequence-field", "x", ("x",)),
        ("count-limit", "5", 5),
        ("ts-field", "x ", "x"),
    ],
)
def test_an_option_of_a_column_is_read_as_its_type(suffix: str, text: str, value: Any) -> None:
    options = table({f"fields.a.{suffix}": text}).parsed
    assert not options.faults
    assert options.of_field("a", suffix) == value
    assert options.of_field("b", suffix) == FIELD_OPTIONS[suffix].default


@pytest.mark.parametrize(
    ("suffix", "text"), [("ignore-retract", "yes"), ("distinct", ""), ("count-limit", "0"), ("count-limit", "x")]
)
@pytest.mark.parametrize(
    "others",
    [{}, {"merge-engine": "aggregation", DEFAULT_FUNCTION: "max"}, {"aggregation.remove-record-on-delete": "true"}],
)
def test_a_value_of_a_column_that_cannot_be_read_is_refused(others: dict[str, str], suffix: str, text: str) -> None:
    found = faults(table(others | {f"fields.a.{suffix}": text}))
    assert (f"fields.a.{suffix}", "illegal_option_value") in found
    assert others or len(found) == 1


OF_A_GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "a", "fields.a.aggregate-function": "sum"}


@pytest.mark.parametrize("key", TABLE_OPTIONS)
def test_the_view_of_what_folds_shows_the_options_that_say_so_and_refuses_all_others(key: str) -> None:
    whole = table(OF_A_GROUP).parsed
    if TABLE_OPTIONS[key].folds:
        assert whole.folding[key] == whole[key]
        assert whole.folding.given(key) is whole.given(key)
        return
    for read in (whole.folding.__getitem__, whole.folding.given):
        with pytest.raises(LookupError, match="does not say folds=True"):
            read(key)


@pytest.mark.parametrize("suffix", FIELD_OPTIONS)
def test_the_view_of_what_folds_refuses_options_of_columns_alike(suffix: str) -> None:
    whole = table({"fields.a.default-value": "1", **OF_A_GROUP}).parsed
    assert ("a", "default-value") not in whole.folding.fields
    if FIELD_OPTIONS[suffix].folds:
        assert whole.folding.of_field("a", suffix) == whole.of_field("a", suffix)
        return
    with pytest.raises(LookupError, match="does not say folds=True"):
        whole.folding.of_field("a", suffix)


def test_only_what_folds_tells_two_views_apart() -> None:
    plain, other = table(OF_A_GROUP).parsed, table(OF_A_GROUP | {"merge.max-staleness": "5 s", "bucket": "4"}).parsed
    assert plain != other
    assert plain.folding == other.folding
    assert plain.folding != table(OF_A_GROUP | {"ignore-delete": "true"}).parsed.folding


def test_a_schema_reads_its_options_once() -> None:
    schema = table(OF_A_GROUP)
    assert schema.parsed is schema.parsed
    assert schema.parsed.folding is schema.parsed.folding


def test_options_are_parsed_by_their_schema_and_by_no_other() -> None:
    root = Path(__file__).parent.parent.parent.parent.parent
    places = [path for folder in ("app", "spark_jobs") for path in (root / folder).rglob("*.py")]
    callers = [path for path in places if re.search(r"(?<!def )parse_options\(", path.read_text())]
    assert callers == [root / "app" / "core" / "table" / "schema.py"]


def test_a_column_is_in_the_group_that_names_it_and_follows_it_unless_it_orders_it() -> None:
    options = table({"fields.g,h.sequence-group": "a,g", "fields.c.sequence-group": "b"}).parsed
    assert [group and group.key for group in map(options.group_of, ("g", "h", "a", "c", "b", "k"))] == [
        *["fields.g,h.sequence-group"] * 3,
        *["fields.c.sequence-group"] * 2,
        None,
    ]
    assert options.groups[0].followers == ("a",)


def test_sequence_groups_are_read_with_their_names_trimmed() -> None:
    options = table({"fields.g, h.sequence-group": " a, b "}).parsed
    assert not options.faults
    assert options.groups == (SequenceGroup(("g", "h"), ("a", "b"), "fields.g, h.sequence-group"),)


def test_the_older_keys_are_those_of_paimon() -> None:
    engines = ("first-row", "deduplicate", "partial-update")
    assert dict(FALLBACK_KEYS) == {f"{engine}.ignore-delete": "ignore-delete" for engine in engines}


@pytest.mark.parametrize("old", FALLBACK_KEYS)
def test_an_old_key_still_works_and_gives_way_to_the_new_one(old: str) -> None:
    new = FALLBACK_KEYS[old]
    assert table({old: "true"}).parsed[new] is True
    assert table({old: "true", new: "false"}).parsed[new] is False
    assert table({new: "false", old: "true"}).parsed[new] is False
    assert faults(table({old: "maybe"})) == {(old, "illegal_option_value")}


def test_keys_are_reported_with_pointers_that_are_escaped() -> None:
    (found,) = violations(table({"a/b~c": "x"}))
    assert found.pointer == "/options/a~1b~0c"


def test_every_fault_of_keys_and_values_is_reported_together() -> None:
    options = {
        "merge-engine": "none",
        "bucket": "x",
        "zzz": "",
        "fields.zzz.distinct": "maybe",
        "fields.a.b.c": "",
        "fields.a.zzz": "",
    }
    assert faults(table(options)) == {
        ("merge-engine", "illegal_option_value"),
        ("bucket", "illegal_option_value"),
        ("zzz", "unknown_option"),
        ("fields.zzz.distinct", "unknown_column"),
        ("fields.zzz.distinct", "illegal_option_value"),
        ("fields.a.b.c", "malformed_option"),
        ("fields.a.zzz", "unknown_option"),
    }
