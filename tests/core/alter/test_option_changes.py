"""Which options may change on a table with rows, which changes touch the fold, and what a rename rewrites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.alter.option_changes import (
    immutable_violations,
    options_naming,
    options_naming_field,
    renamed_options,
    with_field_renamed,
)
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS
from app.core.table.options.option import Change, Names, Option
from tests.core.tables import COLUMNS, table

# Two values of each option that never changes, the first one set at creation.
VALUES = {
    "merge-engine": ("partial-update", "aggregation"),
    "rowkind.field": ("p", "c"),
    "aggregation.remove-record-on-delete": ("true", "false"),
    "partial-update.remove-record-on-delete": ("false", "true"),
    "partial-update.remove-record-on-sequence-group": ("g", "h"),
    "sequence.snapshot-ordering": ("true", "false"),
    "primary-key.nullable": ("true", "false"),
    "bucket-key": ("k", "a"),
    "partition": ("a", "b"),
    "force-lookup": ("true", "false"),
}


def _refused(before: dict[str, str], after: dict[str, str]) -> list[str]:
    found = immutable_violations(table(before), table(after))
    assert all(fault.code == "immutable_option" and fault.fix for fault in found)
    return [fault.pointer for fault in found]


def _changing(change: Change) -> set[str]:
    return {key for key, option in TABLE_OPTIONS.items() if option.change is change}


def test_every_immutable_option_is_tried_here() -> None:
    assert VALUES.keys() | {"primary-key"} == _changing(Change.NEVER)


@pytest.mark.parametrize("key", VALUES)
def test_an_immutable_option_is_neither_changed_nor_removed_nor_added(key: str) -> None:
    first, second = VALUES[key]
    other = "true" if first == "false" else first  # another value than the default
    assert _refused({key: first}, {key: second}) == [f"/options/{key}"]
    assert _refused({key: other}, {}) == [f"/options/{key}"]
    assert _refused({}, {key: other}) == [f"/options/{key}"]
    assert _refused({key: first}, {key: first}) == []


def test_an_option_set_to_what_it_means_anyway_is_no_change() -> None:
    assert _refused({}, {"merge-engine": "deduplicate", "primary-key.nullable": "false"}) == []
    assert _refused({"merge-engine": "partial-update"}, {"merge-engine": " Partial-Update "}) == []


def test_the_fix_of_an_option_that_never_changes_says_what_to_do_instead() -> None:
    [key] = immutable_violations(table(), replace(table(), primary_key=("a",)))
    [bucket] = immutable_violations(table(), table({"bucket-key": "a"}))
    [engine] = immutable_violations(table(), table({"merge-engine": "first-row"}))
    assert key.fix == "create a new table with the other key and post the records there"
    assert bucket.fix == "leave it as it is: Keyfold lays out its files without it"
    assert engine.fix == "create a new table with the option and post the records there"


TURNED_ON = ("ignore-delete", "ignore-update-before")


def test_every_option_that_is_only_turned_on_is_tried_here_and_those_of_columns_are_free() -> None:
    assert {*TURNED_ON, "record.absent-columns"} == _changing(Change.TURNED_ON)
    assert {option.change for option in FIELD_OPTIONS.values()} == {Change.FREE}


@pytest.mark.parametrize("key", [*TURNED_ON, "first-row.ignore-delete", "partial-update.ignore-delete"])
def test_what_drops_records_is_turned_on_but_never_off(key: str) -> None:
    assert _refused({}, {key: "true"}) == []
    assert _refused({key: "false"}, {key: "true"}) == []
    assert _refused({key: "true"}, {key: "false"}) == [f"/options/{key}"]
    assert _refused({key: "true"}, {}) == [f"/options/{key}"]
    assert _refused({key: "false"}, {}) == []


def test_absent_columns_are_left_alone_from_some_moment_on_and_for_good() -> None:
    key = "record.absent-columns"
    assert _refused({}, {key: "unchanged"}) == _refused({key: "null"}, {key: "unchanged"}) == []
    assert _refused({key: "null"}, {}) == []
    assert _refused({key: "unchanged"}, {key: "null"}) == _refused({key: "unchanged"}, {}) == [f"/options/{key}"]


def test_ignore_delete_may_move_to_its_own_key() -> None:
    assert _refused({"deduplicate.ignore-delete": "true"}, {"ignore-delete": "true"}) == []


def test_all_other_options_may_change() -> None:
    before = {"sequence.field": "a", "fields.a.aggregate-function": "sum", "merge.max-staleness": "1 s"}
    after = {"sequence.field": "b", "sequence.field.sort-order": "descending", "fields.g.sequence-group": "a"}
    assert _refused(before, {**after, "changelog-producer": "lookup", "fields.a.default-value": "1"}) == []


# Options of a table with the columns a and b, and what they are once a is called z.
RENAMED = [
    ({"sequence.field": "b, a ,c"}, {"sequence.field": "b,z,c"}),
    ({"rowkind.field": " a "}, {"rowkind.field": "z"}),
    ({"bucket-key": "a,b"}, {"bucket-key": "z,b"}),
    ({"primary-key": "k,a"}, {"primary-key": "k,z"}),
    ({"partition": "b,a"}, {"partition": "b,z"}),
    ({"clustering.columns": "a,b"}, {"clustering.columns": "z,b"}),
    (
        {"partial-update.remove-record-on-sequence-group": "a,h"},
        {"partial-update.remove-record-on-sequence-group": "z,h"},
    ),
    (
        {"changelog-producer.row-deduplicate-ignore-fields": "b,a"},
        {"changelog-producer.row-deduplicate-ignore-fields": "b,z"},
    ),
    ({"fields.a.sequence-group": "b"}, {"fields.z.sequence-group": "b"}),
    ({"fields.g,a.sequence-group": "b,c"}, {"fields.g,z.sequence-group": "b,c"}),
    ({"fields.g.sequence-group": "b,a"}, {"fields.g.sequence-group": "b,z"}),
    *[
        ({f"fields.a.{suffix}": "a"}, {f"fields.z.{suffix}": "a"})
        for suffix in FIELD_OPTIONS
        if suffix != "sequence-group"
    ],
]


@pytest.mark.parametrize(("before", "after"), RENAMED, ids=[next(iter(before)) for before, _ in RENAMED])
def test_a_rename_rewrites_every_option_that_names_the_column(before: dict[str, str], after: dict[str, str]) -> None:
    assert renamed_options(before, "a", "z") == after
    assert options_naming(before, "a") == [*before]
    assert options_naming(after, "a") == []


def test_every_option_that_names_columns_is_renamed_here_and_no_other() -> None:
    tried = {key for before, _ in RENAMED for key in before if not key.startswith("fields.")}
    assert tried == {key for key, option in TABLE_OPTIONS.items() if option.names in (Names.COLUMN, Names.COLUMNS)}
    assert {key: option.names for key, option in FIELD_OPTIONS.items() if option.names is not Names.NOTHING} == {
        "sequence-group": Names.COLUMNS,
        "nested-key": Names.FIELDS,
        "nested-sequence-field": Names.FIELDS,
        "ts-field": Names.FIELD,
    }


@pytest.mark.parametrize("option", [o for o in TABLE_OPTIONS.values() if o.names is Names.COLUMN], ids=lambda o: o.key)
def test_an_option_that_names_one_column_takes_its_whole_text_as_the_name(option: Option) -> None:
    assert renamed_options({option.key: "a,b"}, "a", "z") == {option.key: "a,b"}
    assert renamed_options({option.key: "a,b"}, "a,b", "z") == {option.key: "z"}


def test_fields_of_a_column_are_renamed_one_by_one_or_as_a_whole() -> None:
    options = {"fields.n.nested-key": "a, b", "fields.n.nested-sequence-field": "b,a", "fields.n.ts-field": "a,b"}
    renamed = {"fields.n.nested-key": "z, b", "fields.n.nested-sequence-field": "b,z", "fields.n.ts-field": "a,b"}
    assert with_field_renamed(options, "n", "a", "z") == renamed
    assert with_field_renamed(options, "n", "a,b", "z") == {**options, "fields.n.ts-field": "z"}
    assert options_naming_field(options, ("n", "element", "a")) == [*options][:2]
    assert options_naming_field(options, ("m", "element", "a")) == []


@pytest.mark.parametrize(
    "options",
    [
        {"fields.b.nested-key": "a"},
        {"fields.b.ts-field": "a"},
        {"fields.b.nested-sequence-field": "a"},
        {"fields.b.default-value": "a"},
        {"fields.b.list-agg-delimiter": "a"},
        {"fields.default-aggregate-function": "a"},
        {"fields.ab.ignore-retract": "true"},
        {"sequence.field": "ab,b.a"},
        {"file.format": "a"},
    ],
)
def test_a_rename_leaves_what_only_looks_like_the_column(options: dict[str, str]) -> None:
    assert renamed_options(options, "a", "z") == options
    assert options_naming(options, "a") == []


def test_the_columns_of_these_tests_exist() -> None:
    assert {"a", "b", "c", "g", "h", "p", "k"} <= COLUMNS.keys()
