"""What options may stand together, and with which columns: each rule broken and kept."""

from __future__ import annotations

import pytest

from app.core.functions.entries import ALIASES, FUNCTIONS
from app.core.plan.checks.option_checks import CHECKS, check_options
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.schema import TableSchema
from app.core.types.kinds import Kind
from tests.core.option_cases import AGGREGATION, DEFAULT, ILLEGAL, LEGAL, PADDING, PARTIAL, Options
from tests.core.tables import faults, plan, table, violations


@pytest.mark.parametrize(("options", "key", "code"), [pytest.param(*case, id=name) for name, *case in ILLEGAL])
def test_a_broken_rule_is_named_by_its_option(options: Options, key: str, code: str) -> None:
    assert (key, code) in faults(table(options))


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in LEGAL])
def test_a_table_that_keeps_the_rules_is_accepted(options: Options) -> None:
    assert plan(options).schema.options == options


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
def test_every_check_finds_something_in_the_list_above_that_no_other_check_finds(check: object) -> None:
    def found(schema: TableSchema, one: object) -> bool:
        return any(one(schema, schema.parsed))  # type: ignore[operator]  # a check

    tables = [table(options) for _, options, _, _ in ILLEGAL]
    assert any(found(t, check) and not any(found(t, other) for other in CHECKS if other is not check) for t in tables)


def test_all_broken_rules_are_reported_together() -> None:
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


def test_functions_need_not_suit_keys_and_sequence_fields() -> None:
    options = AGGREGATION | {DEFAULT: "sum", "sequence.field": "s"}
    assert plan(options, {"k": "STRING", "s": "TIMESTAMP(3)", "v": "INT"})


@pytest.mark.parametrize(("key", "function"), [("fields.a.aggregate-function", "summ"), (DEFAULT, "last_valu")])
def test_the_fix_of_an_unknown_function_lists_the_known_ones(key: str, function: str) -> None:
    (found,) = violations(table(AGGREGATION | {key: function}))
    assert all(name in found.fix for name in (*FUNCTIONS, *ALIASES))


ROWS = {"k": "INT", "v": "ARRAY<ROW<y INT, z INT, w ARRAY<INT>>>", "m": "MAP<INT, ROW<y STRING, z INT, w ARRAY<INT>>>"}
NESTED = AGGREGATION | {"fields.v.aggregate-function": "nested_update"}
KEYED = NESTED | {"fields.v.nested-key": "y"}
KEYTIME = AGGREGATION | {"fields.m.aggregate-function": "merge_map_with_keytime"}
NESTED_PARTIAL = AGGREGATION | {"fields.v.aggregate-function": "nested_partial_update"}


@pytest.mark.parametrize(
    ("options", "key", "code"),
    [
        (NESTED | {"fields.v.nested-key": "y,zz"}, "fields.v.nested-key", "unknown_field"),
        (NESTED | {"fields.v.nested-key": "w"}, "fields.v.nested-key", "illegal_order_type"),
        (KEYED | {"fields.v.nested-sequence-field": "zz"}, "fields.v.nested-sequence-field", "unknown_field"),
        (NESTED | {"fields.v.nested-sequence-field": "z"}, "fields.v.nested-sequence-field", "missing_option"),
        (
            NESTED | {"fields.v.nested-key-null-strategy": "merge"},
            "fields.v.nested-key-null-strategy",
            "missing_option",
        ),
        (
            KEYED | {"fields.v.nested-key-null-strategy": "x"},
            "fields.v.nested-key-null-strategy",
            "illegal_option_value",
        ),
        (NESTED_PARTIAL, "fields.v.nested-key", "missing_option"),
        (KEYTIME, "fields.m.ts-field", "illegal_order_type"),
        (KEYTIME | {"fields.m.ts-field": "zz"}, "fields.m.ts-field", "unknown_field"),
    ],
)
def test_the_options_of_nested_functions_name_fields_that_are_there(options: Options, key: str, code: str) -> None:
    assert (key, code) in faults(table(options, ROWS))


@pytest.mark.parametrize(
    "options",
    [
        NESTED | {"fields.v.count-limit": "3"},
        KEYED | {"fields.v.nested-sequence-field": "z", "fields.v.nested-key-null-strategy": "ignore"},
        NESTED_PARTIAL | {"fields.v.nested-key": "y,z"},
        KEYTIME | {"fields.m.ts-field": "z"},
        AGGREGATION | {"fields.v.aggregate-function": "collect", "fields.v.distinct": "true"},
        AGGREGATION | {"fields.m.aggregate-function": "merge_map"},
    ],
)
def test_legal_options_of_nested_functions_are_accepted(options: Options) -> None:
    assert plan(options, ROWS)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("merge_map_with_keytime", "MAP<INT, ROW<y INT>>"),
        ("merge_map_with_keytime", "ROW<y INT, z INT>"),
        ("nested_update", "ROW<y INT>"),
        ("nested_partial_update", "MAP<INT, ROW<y INT>>"),
        ("listagg", "VARCHAR(10)"),
    ],
)
def test_a_nested_function_on_another_type_is_refused_by_name(function: str, kind: str) -> None:
    options = AGGREGATION | {"fields.v.aggregate-function": function}
    assert faults(table(options, {"k": "INT", "v": kind})) == {("fields.v.aggregate-function", "illegal_function_type")}


SAMPLES = {"ARRAY": "ARRAY<INT>", "MULTISET": "MULTISET<INT>", "MAP": "MAP<INT, INT>", "ROW": "ROW<y INT>"}
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
PADDED = (*NUMBERS, "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "CHAR", "VARCHAR", "STRING")
ORDERS_GROUPS = (*PADDED, "TIME")
TAKES = {
    "sum": NUMBERS,
    **dict.fromkeys(("max", "min"), tuple(kind for kind in Kind if kind not in SAMPLES)),
    **dict.fromkeys(("last_value", "last_non_null_value", "first_value", "first_non_null_value"), tuple(Kind)),
    **dict.fromkeys(("bool_and", "bool_or"), ("BOOLEAN",)),
    "product": NUMBERS,
    **dict.fromkeys(("rbm32", "rbm64", "hll_sketch", "theta_sketch"), ("VARBINARY", "BYTES")),
    "listagg": ("STRING",),
    "collect": ("ARRAY",),
    "merge_map": ("MAP",),
    **dict.fromkeys(("merge_map_with_keytime", "nested_update", "nested_partial_update"), ()),  # below
}


@pytest.mark.parametrize("function", [*FUNCTIONS, *ALIASES])
@pytest.mark.parametrize("kind", Kind)
def test_a_function_takes_the_types_that_the_specification_lists(function: str, kind: str) -> None:
    options = AGGREGATION | {"fields.v.aggregate-function": function}
    schema = table(options, {"k": "INT", "v": SAMPLES.get(kind, kind)})
    if kind in TAKES[ALIASES.get(function, function)]:
        assert compile_plan(schema)
    else:
        assert faults(schema) == {("fields.v.aggregate-function", "illegal_function_type")}


@pytest.mark.parametrize("kind", Kind)
def test_a_sequence_field_is_a_scalar_and_a_group_is_ordered_by_numbers_texts_and_times(kind: str) -> None:
    columns = {"k": "INT", "v": "INT", "s": SAMPLES.get(kind, kind)}
    wanted = set() if kind not in SAMPLES else {("sequence.field", "illegal_order_type")}
    assert _faults_or_none(table({"sequence.field": "s"}, columns)) == wanted
    key = "fields.s.sequence-group"
    wanted = set() if kind in ORDERS_GROUPS else {(key, "illegal_order_type")}
    assert _faults_or_none(table(PARTIAL | {key: "v"}, columns)) == wanted
    wanted = set() if kind in PADDED else {(PADDING, "illegal_order_type")}
    padded = table({"sequence.field": "s", PADDING: "row-kind-flag"}, columns)
    assert _faults_or_none(padded) - {("sequence.field", "illegal_order_type")} == wanted


def _faults_or_none(schema: TableSchema) -> set[tuple[str, str]]:
    found = [*schema.parsed.faults, *check_options(schema)]
    return {(fault.pointer.removeprefix("/options/"), fault.code) for fault in found}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in ("CHAR", "VARCHAR", "STRING")])
def test_a_row_kind_field_is_text(kind: str) -> None:
    schema = table({"rowkind.field": "s"}, {"k": "INT", "s": SAMPLES.get(kind, kind)})
    assert faults(schema) == {("rowkind.field", "illegal_column_type")}


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
