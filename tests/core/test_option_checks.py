"""What options may stand together, and with which columns: each rule of merge-semantics §6 broken and kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.core.functions import ALIASES, FUNCTIONS
from app.core.merge_plan import compile_plan
from app.core.option_checks import CHECKS, GROUP_ORDERING_KINDS, PADDED_KINDS, check_options
from app.core.options import parse_options
from app.core.schema import TableSchema
from app.core.type_parser import parse_type
from app.core.types import KINDS
from tests.core.tables import COLUMNS, faults, plan, table, violations

Options = Mapping[str, str]
PARTIAL = {"merge-engine": "partial-update"}
AGGREGATION = {"merge-engine": "aggregation"}
FIRST_ROW = {"merge-engine": "first-row"}
ON_DELETE = "partial-update.remove-record-on-delete"
ON_GROUP = "partial-update.remove-record-on-sequence-group"
AGGREGATION_ON_DELETE = "aggregation.remove-record-on-delete"
DEFAULT = "fields.default-aggregate-function"
GROUP = {"fields.g.sequence-group": "a,b"}
PADDING = "sequence.auto-padding"

# (what is wrong, options, option key, violation code)
ILLEGAL: list[tuple[str, Options, str, str]] = [
    ("unknown function", AGGREGATION | {"fields.a.aggregate-function": "summ"}, "fields.a.aggregate-function", "unknown_function"),
    ("unknown function of a key", AGGREGATION | {"fields.k.aggregate-function": "x"}, "fields.k.aggregate-function", "unknown_function"),
    ("empty function", AGGREGATION | {"fields.a.aggregate-function": " "}, "fields.a.aggregate-function", "unknown_function"),
    ("unknown default function", AGGREGATION | {DEFAULT: "summ"}, DEFAULT, "unknown_function"),
    ("unknown function of a group", PARTIAL | GROUP | {"fields.a.aggregate-function": "x"}, "fields.a.aggregate-function", "unknown_function"),
    ("sum of text", AGGREGATION | {"fields.c.aggregate-function": "sum"}, "fields.c.aggregate-function", "illegal_function_type"),
    ("sum of text by default", AGGREGATION | {DEFAULT: "sum"}, DEFAULT, "illegal_function_type"),
    ("max of a list", AGGREGATION | {"fields.l.aggregate-function": "max"}, "fields.l.aggregate-function", "illegal_function_type"),
    ("min of a row", AGGREGATION | {"fields.r.aggregate-function": "min"}, "fields.r.aggregate-function", "illegal_function_type"),
    ("bool_or of a number", AGGREGATION | {"fields.a.aggregate-function": "bool_or"}, "fields.a.aggregate-function", "illegal_function_type"),
    ("sum of text in a group", PARTIAL | {"fields.g.sequence-group": "c", "fields.c.aggregate-function": "sum"}, "fields.c.aggregate-function", "illegal_function_type"),
    ("ignore-retract with removal", AGGREGATION | {AGGREGATION_ON_DELETE: "true", "fields.a.ignore-retract": "true"}, "fields.a.ignore-retract", "contradicting_options"),
    ("unknown sequence field", {"sequence.field": "a,zzz"}, "sequence.field", "unknown_column"),
    ("sequence field twice", {"sequence.field": "a,b,a"}, "sequence.field", "duplicate_column"),
    ("sequence field without order", {"sequence.field": "l"}, "sequence.field", "illegal_order_type"),
    ("sequence field with a function", AGGREGATION | {"sequence.field": "a", "fields.a.aggregate-function": "max"}, "fields.a.aggregate-function", "contradicting_options"),
    ("sequence field of first-row", FIRST_ROW | {"sequence.field": "a"}, "sequence.field", "contradicting_options"),
    ("snapshot ordering with a sequence field", {"sequence.snapshot-ordering": "true", "write-only": "true", "sequence.field": "a"}, "sequence.snapshot-ordering", "contradicting_options"),
    ("snapshot ordering without write-only", {"sequence.snapshot-ordering": "true"}, "sequence.snapshot-ordering", "missing_option"),
    ("padding unknown", {"sequence.field": "a", PADDING: "nano-to-micro"}, PADDING, "illegal_option_value"),
    ("padding twice", {"sequence.field": "a", PADDING: "row-kind-flag,row-kind-flag"}, PADDING, "illegal_option_value"),
    ("padding with two units", {"sequence.field": "a", PADDING: "second-to-micro,millis-to-micro"}, PADDING, "illegal_option_value"),
    ("padding with its flag first", {"sequence.field": "a", PADDING: "row-kind-flag,second-to-micro"}, PADDING, "illegal_option_value"),
    ("padding of nothing", {PADDING: "row-kind-flag"}, PADDING, "missing_option"),
    ("padding of two fields", {"sequence.field": "a,b", PADDING: "row-kind-flag"}, PADDING, "missing_option"),
    ("padding of a truth value", {"sequence.field": "o", PADDING: "row-kind-flag"}, PADDING, "illegal_order_type"),
    ("unknown row kind field", {"rowkind.field": "zzz"}, "rowkind.field", "unknown_column"),
    ("row kind field of numbers", {"rowkind.field": "a"}, "rowkind.field", "illegal_column_type"),
    ("unknown protected field", PARTIAL | {"fields.g.sequence-group": "a,zzz"}, "fields.g.sequence-group", "unknown_column"),
    ("unknown ordering field", PARTIAL | {"fields.g,zzz.sequence-group": "a"}, "fields.g,zzz.sequence-group", "unknown_column"),
    ("key protected", PARTIAL | {"fields.g.sequence-group": "a,k"}, "fields.g.sequence-group", "key_in_group"),
    ("key as ordering field", PARTIAL | {"fields.k.sequence-group": "a"}, "fields.k.sequence-group", "key_in_group"),
    ("ordering field of truth values", PARTIAL | {"fields.o.sequence-group": "a"}, "fields.o.sequence-group", "illegal_order_type"),
    ("ordering field of bytes", PARTIAL | {"fields.x.sequence-group": "a"}, "fields.x.sequence-group", "illegal_order_type"),
    ("ordering field without order", PARTIAL | {"fields.l.sequence-group": "a"}, "fields.l.sequence-group", "illegal_order_type"),
    ("column protected twice", PARTIAL | GROUP | {"fields.h.sequence-group": "b,c"}, "fields.h.sequence-group", "column_in_two_groups"),
    ("ordering field shared", PARTIAL | GROUP | {"fields.g,h.sequence-group": "c"}, "fields.g,h.sequence-group", "column_in_two_groups"),
    ("ordering field protected elsewhere", PARTIAL | GROUP | {"fields.h.sequence-group": "g"}, "fields.h.sequence-group", "column_in_two_groups"),
    ("column twice in one group", PARTIAL | {"fields.g.sequence-group": "a,a"}, "fields.g.sequence-group", "duplicate_column"),
    ("ordering field twice", PARTIAL | {"fields.g,g.sequence-group": "a"}, "fields.g,g.sequence-group", "duplicate_column"),
    ("group of nothing", PARTIAL | {"fields.g.sequence-group": " "}, "fields.g.sequence-group", "illegal_option_value"),
    ("function outside a group", PARTIAL | {"fields.a.aggregate-function": "sum"}, "fields.a.aggregate-function", "function_outside_group"),
    ("default function outside a group", PARTIAL | GROUP | {DEFAULT: "last_value"}, DEFAULT, "function_outside_group"),
    ("function of an ordering field", PARTIAL | GROUP | {"fields.g.aggregate-function": "max"}, "fields.g.aggregate-function", "contradicting_options"),
    ("ignored and removing deletes", PARTIAL | {"ignore-delete": "true", ON_DELETE: "true"}, ON_DELETE, "contradicting_options"),
    ("ignored deletes and removing groups", PARTIAL | GROUP | {"ignore-delete": "true", ON_GROUP: "g"}, ON_GROUP, "contradicting_options"),
    ("removal with groups", PARTIAL | GROUP | {ON_DELETE: "true"}, ON_DELETE, "contradicting_options"),
    ("removal on a column of no group", PARTIAL | GROUP | {ON_GROUP: "a"}, ON_GROUP, "unknown_group"),
    ("removal on a group without groups", PARTIAL | {ON_GROUP: "g"}, ON_GROUP, "unknown_group"),
    ("changelog of first-row", FIRST_ROW | {"changelog-producer": "input"}, "changelog-producer", "contradicting_options"),
    ("full-compaction changelog of first-row", FIRST_ROW | {"changelog-producer": "full-compaction"}, "changelog-producer", "contradicting_options"),
    ("default of a key", {"fields.k.default-value": "1"}, "fields.k.default-value", "key_with_default"),
    ("default of another type", {"fields.a.default-value": "one"}, "fields.a.default-value", "illegal_default"),
    ("default too precise", {"fields.d.default-value": "'1.234'"}, "fields.d.default-value", "illegal_default"),
    ("default of a nested column", {"fields.l.default-value": "[]"}, "fields.l.default-value", "illegal_default"),
    ("removing groups", PARTIAL | GROUP | {ON_GROUP: "g"}, ON_GROUP, "not_supported_yet"),
    ("removal by sequence", PARTIAL | {ON_DELETE: "true", "sequence.field": "a"}, ON_DELETE, "not_supported_yet"),
    ("aggregated removal by sequence", AGGREGATION | {AGGREGATION_ON_DELETE: "true", "sequence.field": "a"}, AGGREGATION_ON_DELETE, "not_supported_yet"),
]  # fmt: skip

LEGAL: list[tuple[str, Options]] = [
    ("no options", {}),
    ("every engine's own function", AGGREGATION | {"fields.a.aggregate-function": "sum"}),
    ("old name of a function", AGGREGATION | {"fields.a.aggregate-function": "first_not_null_value"}),
    ("legal function of a key, which is ignored", AGGREGATION | {"fields.k.aggregate-function": "sum"}),
    ("default function that keys and sequence fields need not take", AGGREGATION | {DEFAULT: "max", "sequence.field": "t"}),
    ("functions that deduplicate ignores", {"fields.a.aggregate-function": "zzz", DEFAULT: "zzz"}),
    ("ignore-retract without removal", AGGREGATION | {"fields.a.ignore-retract": "true"}),
    ("ignore-retract said to be off", AGGREGATION | {AGGREGATION_ON_DELETE: "true", "fields.a.ignore-retract": "false"}),
    ("sequence fields", {"sequence.field": "a,t,o,x", "sequence.field.sort-order": "descending"}),
    ("sequence field on a key column", {"sequence.field": "k"}),
    ("sequence field of partial-update", PARTIAL | {"sequence.field": "a"}),
    ("snapshot ordering", {"sequence.snapshot-ordering": "true", "write-only": "true"}),
    *[(f"padding {steps}", {"sequence.field": "a", PADDING: steps}) for steps in ("row-kind-flag", "second-to-micro", "millis-to-micro", "second-to-micro,row-kind-flag", "millis-to-micro, row-kind-flag")],
    ("row kind field", {"rowkind.field": "p"}),
    ("groups", PARTIAL | GROUP | {"fields.h,t.sequence-group": "c,d"}),
    ("ordering field that its own group protects", PARTIAL | {"fields.g.sequence-group": "a,g"}),
    ("names with blanks", PARTIAL | {"fields.g , h.sequence-group": " a , b "}),
    ("groups that another engine ignores", {"fields.g.sequence-group": "zzz"}),
    ("function in a group", PARTIAL | GROUP | {"fields.a.aggregate-function": "sum"}),
    ("last_non_null_value anywhere", PARTIAL | {"fields.a.aggregate-function": "last_non_null_value", DEFAULT: "last_non_null_value"}),
    ("removal", PARTIAL | {ON_DELETE: "true"}),
    ("removal said to be off", PARTIAL | GROUP | {ON_DELETE: "false", "ignore-delete": "true"}),
    ("aggregated removal", AGGREGATION | {AGGREGATION_ON_DELETE: "true"}),
    ("lookup changelog of first-row", FIRST_ROW | {"changelog-producer": "lookup"}),
    ("any changelog", {"changelog-producer": "full-compaction"}),
    ("default", {"fields.a.default-value": "5", "fields.c.default-value": "'five'", "fields.d.default-value": "1.25"}),
    ("nullable key", {"primary-key.nullable": "true"}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "key", "code"), [pytest.param(*case, id=name) for name, *case in ILLEGAL])
def test_a_broken_rule_is_named_by_its_option(options: Options, key: str, code: str) -> None:
    assert (key, code) in faults(table(options))


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in LEGAL])
def test_a_table_that_keeps_the_rules_is_accepted(options: Options) -> None:
    assert plan(options).schema.options == options


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_finds_something_in_the_list_above_that_no_other_check_finds(check: object) -> None:
    def found(schema: TableSchema, one: object) -> bool:
        return any(one(schema, parse_options(schema)[0]))  # type: ignore[operator]  # a check

    tables = [table(options) for _, options, _, _ in ILLEGAL]
    assert any(found(t, check) and not any(found(t, other) for other in CHECKS if other is not check) for t in tables)


@pytest.mark.parametrize("options", [options for _, options in LEGAL])
def test_no_check_finds_anything_in_a_legal_table(options: Options) -> None:
    schema = table(options)
    assert check_options(schema, parse_options(schema)[0]) == []


def test_all_broken_rules_are_told_together() -> None:
    options = AGGREGATION | {
        "sequence.field": "zzz",
        PADDING: "zzz",
        "rowkind.field": "a",
        "bucket": "x",
        "fields.c.aggregate-function": "sum",
        "fields.k.default-value": "1",
        "merge-engin": "aggregation",
    }
    assert faults(table(options)) == {
        ("sequence.field", "unknown_column"),
        (PADDING, "illegal_option_value"),
        ("rowkind.field", "illegal_column_type"),
        ("bucket", "illegal_option_value"),
        ("fields.c.aggregate-function", "illegal_function_type"),
        ("fields.k.default-value", "key_with_default"),
        ("merge-engin", "unknown_option"),
    }


@pytest.mark.parametrize(
    ("options", "key", "fix"),
    [
        (AGGREGATION | {"fields.a.aggregate-function": "summ"}, "fields.a.aggregate-function", "did you mean sum?"),
        (AGGREGATION | {DEFAULT: "last_valu"}, DEFAULT, "did you mean last_value?"),
        ({"sequence.field": "dd"}, "sequence.field", "did you mean d?"),
        (PARTIAL | {"fields.g.sequence-group": "aa"}, "fields.g.sequence-group", "did you mean a?"),
        ({"rowkind.field": "pp"}, "rowkind.field", "did you mean p?"),
    ],
)
def test_the_fix_of_a_name_that_was_mistyped_says_the_right_one(options: Options, key: str, fix: str) -> None:
    assert any(v.pointer == f"/options/{key}" and fix in v.fix for v in violations(table(options)))


SAMPLES = {"ARRAY": "ARRAY<INT>", "MULTISET": "MULTISET<INT>", "MAP": "MAP<INT, INT>", "ROW": "ROW<y INT>"}
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
TAKES = {
    "sum": NUMBERS,
    **dict.fromkeys(("max", "min"), [kind for kind in KINDS if kind not in SAMPLES]),
    **dict.fromkeys(("last_value", "last_non_null_value", "first_value", "first_non_null_value"), list(KINDS)),
    **dict.fromkeys(("bool_and", "bool_or"), ("BOOLEAN",)),
}


@pytest.mark.parametrize("function", [*FUNCTIONS, *ALIASES])
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_takes_the_types_that_the_specification_lists(function: str, kind: str) -> None:
    options = AGGREGATION | {"fields.v.aggregate-function": function}
    schema = table(options, {"k": "INT", "v": SAMPLES.get(kind, kind)})
    if kind in TAKES[ALIASES.get(function, function)]:
        assert compile_plan(schema)
    else:
        assert faults(schema) == {("fields.v.aggregate-function", "illegal_function_type")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_field_is_a_scalar_and_a_group_is_ordered_by_numbers_texts_and_times(kind: str) -> None:
    columns = {"k": "INT", "v": "INT", "s": SAMPLES.get(kind, kind)}
    wanted = set() if kind not in SAMPLES else {("sequence.field", "illegal_order_type")}
    assert _faults_or_none(table({"sequence.field": "s"}, columns)) == wanted
    key = "fields.s.sequence-group"
    wanted = set() if kind in GROUP_ORDERING_KINDS else {(key, "illegal_order_type")}
    assert _faults_or_none(table(PARTIAL | {key: "v"}, columns)) == wanted
    wanted = set() if kind in PADDED_KINDS else {(PADDING, "illegal_order_type")}
    padded = table({"sequence.field": "s", PADDING: "row-kind-flag"}, columns)
    assert _faults_or_none(padded) - {("sequence.field", "illegal_order_type")} == wanted


def _faults_or_none(schema: TableSchema) -> set[tuple[str, str]]:
    options, unread = parse_options(schema)
    found = [*unread, *check_options(schema, options)]
    return {(fault.pointer.removeprefix("/options/"), fault.code) for fault in found}


def test_the_types_that_order_groups_and_are_padded_are_those_of_the_specification() -> None:
    times = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ")
    texts = ("CHAR", "VARCHAR", "STRING")
    assert set(GROUP_ORDERING_KINDS) == {*NUMBERS, *times, "TIME", *texts}
    assert set(PADDED_KINDS) == {*NUMBERS, *times, *texts}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("CHAR", "VARCHAR", "STRING")])
def test_a_row_kind_field_is_text(kind: str) -> None:
    schema = table({"rowkind.field": "s"}, {"k": "INT", "s": SAMPLES.get(kind, kind)})
    assert faults(schema) == {("rowkind.field", "illegal_column_type")}
    assert parse_type("CHAR(2)").kind in PADDED_KINDS


def test_a_default_of_a_column_is_checked_like_the_option() -> None:
    fields = [
        {"name": "k", "type": "INT"},
        {"name": "a", "type": "INT", "defaultValue": "one"},
        {"name": "b", "type": "INT", "defaultValue": "'7'"},
        {"name": "l", "type": "ARRAY<INT>", "defaultValue": "[]"},
    ]
    found = violations(TableSchema.from_json({"fields": fields, "primaryKeys": ["k"]}))
    assert [(v.pointer, v.code) for v in found] == [
        ("/fields/1/defaultValue", "illegal_default"),
        ("/fields/3/defaultValue", "illegal_default"),
    ]


def test_the_tables_above_have_every_column_that_they_name() -> None:
    assert {"k", "p", "a", "b", "c", "d", "f", "g", "h", "t", "o", "x", "l", "r"} == set(COLUMNS)
