"""A schema says all its faults at once, and what it writes it reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ErrorCode, Invalid, escape_pointer
from app.core.table.schema import RESERVED_NAMES, RESERVED_PREFIXES, Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from tests.core.strategies import NAMES, SCALAR_TYPES, TEXT, TYPES

Body = dict[str, Any]


def body(fields: Any = None, key: Any = ("k",), **more: Any) -> Body:
    """A legal schema but for what the test names; ``fields`` are {name: type} beside the key."""
    named = {"k": "INT", "v": "STRING"} | (fields or {})
    columns = [{"name": name, "type": data_type} for name, data_type in named.items()]
    return {"fields": columns, "primaryKeys": list(key), "options": {}} | more


def faults_of(raw: Body) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        TableSchema.from_json(raw)
    assert caught.value.code is ErrorCode.INVALID_SCHEMA
    assert all(violation.message and violation.fix for violation in caught.value.violations)
    return [(violation.pointer, violation.code) for violation in caught.value.violations]


LEGAL = [
    body(),
    body({"d": "DECIMAL(38, 38) NOT NULL", "a": "ARRAY<ROW<x INT>>"}),
    body(key=("v", "k")),
    body(partitionKeys=["k"]),
    body(partitionKeys=None, comment=None, options=None),
    body(key=(), options={"primary-key": "v, k"}),
    body({"_KEY": "INT", "_kfx": "INT", "rowkinds": "INT", "_KIND": "INT", 'a b`"/~.,é': "INT"}),
    body(unknown="members are ignored"),
]


@pytest.mark.parametrize("raw", LEGAL)
def test_a_legal_schema_is_read_and_its_json_is_read_back_as_the_same(raw: Body) -> None:
    schema = TableSchema.from_json(raw)
    written = json.loads(json.dumps(schema.to_json()))
    assert TableSchema.from_json(written) == schema
    assert TableSchema.from_json(written).to_json() == schema.to_json()


@pytest.mark.parametrize(
    ("raw", "pointer", "code"),
    [
        (body(fields=None) | {"fields": None}, "/fields", "missing"),
        (body() | {"fields": []}, "/fields", "missing"),
        (body() | {"fields": "k INT"}, "/fields", "missing"),
        (body() | {"fields": {"k": "INT"}}, "/fields", "missing"),
        (body() | {"fields": [{"name": "k", "type": "INT"}, "v"]}, "/fields/1", "not_an_object"),
        (body() | {"fields": [{"name": "k", "type": "INT"}, {"type": "INT"}]}, "/fields/1/name", "missing"),
        (body() | {"fields": [{"name": "k", "type": "INT"}, {"name": ""}]}, "/fields/1/name", "missing"),
        (body() | {"fields": [{"name": "k", "type": "INT"}, {"name": 5}]}, "/fields/1/name", "missing"),
        (body() | {"fields": [{"name": "k", "type": "INT"}, {"name": "v"}]}, "/fields/1/type", "missing"),
        (body({"v": "STRIN"}), "/fields/1/type", "unknown_type"),
        (body({"v": "DECIMAL(39)"}), "/fields/1/type", "out_of_range"),
        (body({"v": "VARIANT"}), "/fields/1/type", "unsupported_type"),
        (body() | {"fields": [{"name": "k", "type": "INT"}] * 2}, "/fields/1/name", "duplicate_column"),
        *[(body({name: "INT"}), "/fields/2/name", "reserved_name") for name in sorted(RESERVED_NAMES)],
        *[(body({prefix + "x": "INT"}), "/fields/2/name", "reserved_name") for prefix in RESERVED_PREFIXES],
        (body(key=("x",)), "/primaryKeys/0", "unknown_column"),
        (body(key=("k", "k")), "/primaryKeys/1", "duplicate_column"),
        (body(key=()), "/primaryKeys", "missing_primary_key"),
        (body() | {"primaryKeys": None}, "/primaryKeys", "missing_primary_key"),
        (body() | {"primaryKeys": "k"}, "/primaryKeys", "not_a_list"),
        (body() | {"primaryKeys": [0]}, "/primaryKeys", "not_a_list"),
        (body(options={"primary-key": "k"}), "/options/primary-key", "primary_key_twice"),
        (body(key=(), options={"primary-key": "x"}), "/primaryKeys/0", "unknown_column"),
        *[
            (body({"n": nested}, key=("k", "n")), "/primaryKeys/1", "illegal_key_type")
            for nested in ("ARRAY<INT>", "MAP<INT, INT>", "ROW<a INT>", "MULTISET<INT>")
        ],
        (body({"n": "ROW<a INT>"}, key=("k", "n"), partitionKeys=["n"]), "/partitionKeys/0", "illegal_key_type"),
        (body(partitionKeys=["x"]), "/partitionKeys/0", "unknown_column"),
        (body(partitionKeys=["k", "k"]), "/partitionKeys/1", "duplicate_column"),
        (body(partitionKeys="k"), "/partitionKeys", "not_a_list"),
        (body(partitionKeys=["v"]), "/partitionKeys/0", "partition_key_outside_primary_key"),
        (body(options=[]), "/options", "not_an_object"),
        (body(options={"a/b~": None}), "/options/a~1b~0", "not_text"),
        (body(options={"bucket": [1]}), "/options/bucket", "not_text"),
    ],
)
def test_each_fault_of_a_schema_is_named_where_it_is(raw: Body, pointer: str, code: str) -> None:
    assert (pointer, code) in faults_of(raw)


@pytest.mark.parametrize("kind", ["CHAR(3)", "BYTES", "DOUBLE", "TIMESTAMP(3)", "TIME", "BOOLEAN", "DECIMAL(38, 2)"])
def test_every_scalar_is_a_legal_key(kind: str) -> None:
    schema = TableSchema.from_json(body({"k": kind}, partitionKeys=["k"]))
    assert schema.by_name["k"].type.sql == f"{schema.by_name['k'].type.base_sql} NOT NULL"


def test_all_faults_are_reported_together_in_the_order_of_the_body() -> None:
    raw = {
        "fields": [
            {"name": "k", "type": "MAP<INT, INT>"},
            {"name": "rowkind", "type": "VARIANT"},
            {"name": "k", "type": "INT"},
            7,
        ],
        "primaryKeys": ["k", "x", "k"],
        "partitionKeys": ["y"],
        "options": {"bucket": {}},
    }
    assert sorted(faults_of(raw)) == [
        ("/fields/1/name", "reserved_name"),
        ("/fields/1/type", "unsupported_type"),
        ("/fields/2/name", "duplicate_column"),
        ("/fields/3", "not_an_object"),
        ("/options/bucket", "not_text"),
        ("/partitionKeys/0", "partition_key_outside_primary_key"),
        ("/partitionKeys/0", "unknown_column"),
        ("/primaryKeys/0", "illegal_key_type"),
        ("/primaryKeys/1", "unknown_column"),
        ("/primaryKeys/2", "duplicate_column"),
        ("/primaryKeys/2", "illegal_key_type"),
    ]


def test_the_option_primary_key_becomes_the_primary_key_and_is_no_option_any_more() -> None:
    schema = TableSchema.from_json(body(key=(), options={"primary-key": " v ,k", "bucket": "4"}))
    assert schema.primary_key == ("v", "k")
    assert dict(schema.options) == {"bucket": "4"}
    assert not any(schema.by_name[name].nullable for name in ("k", "v"))


def test_options_that_are_numbers_or_booleans_are_read_as_paimon_spells_them() -> None:
    schema = TableSchema.from_json(body(options={"bucket": 4, "ignore-delete": True, "write-only": False, "x": 0.5}))
    assert dict(schema.options) == {"bucket": "4", "ignore-delete": "true", "write-only": "false", "x": "0.5"}


@pytest.mark.parametrize("text", [None, "true", "TRUE", " true "])
def test_key_columns_become_not_null_unless_the_table_says_otherwise(text: str | None) -> None:
    options = {} if text is None else {"primary-key.nullable": text}
    schema = TableSchema.from_json(body({"n": "INT NOT NULL"}, key=("k", "n"), options=options))
    assert [column.nullable for column in schema.key_columns] == [text is not None, False]
    assert all(column.nullable for column in schema.value_columns)


def test_columns_without_an_id_get_the_next_free_one_and_nested_fields_share_the_numbers() -> None:
    raw = body() | {
        "fields": [
            {"id": 5, "name": "k", "type": "INT"},
            {"name": "a", "type": "ROW<x INT, y INT>"},
            {"id": 0, "name": "b", "type": "INT"},
            {"id": -1, "name": "c", "type": "INT"},
            {"id": True, "name": "d", "type": "INT"},
        ]
    }
    schema = TableSchema.from_json(raw)
    ids = [column.id for column in schema.columns]
    assert ids[0] == 5
    assert ids[2] == 0
    nested = [field.id for field in schema.by_name["a"].type.fields]
    assert len({*ids, *nested}) == 7
    assert schema.highest_field_id == max(*ids, *nested)


def test_an_id_that_no_reader_of_paimon_could_hold_is_never_given() -> None:
    highest = 2**31 - 1
    raw = body() | {"fields": [{"id": highest, "name": "k", "type": "INT"}, {"name": "v", "type": "INT"}]}
    schema = TableSchema.from_json(raw)
    assert all(0 <= column.id <= highest for column in schema.columns)
    assert TableSchema.from_json(schema.to_json()) == schema


def test_descriptions_defaults_and_the_comment_are_kept() -> None:
    raw = body(comment="c") | {
        "fields": [
            {"name": "k", "type": "INT", "description": "the key"},
            {"name": "v", "type": "INT", "defaultValue": "5"},
        ]
    }
    schema = TableSchema.from_json(raw)
    assert [(column.description, column.default) for column in schema.columns] == [("the key", None), (None, "5")]
    assert schema.comment == "c"
    assert TableSchema.from_json(schema.to_json()) == schema


def test_columns_are_found_by_name_and_sorted_by_key_and_value() -> None:
    schema = TableSchema.from_json(body({"w": "INT"}, key=("w", "k")))
    assert [column.name for column in schema.key_columns] == ["w", "k"], "in primary-key order"
    assert [column.name for column in schema.value_columns] == ["v"]
    assert schema.by_name["v"] == Column(1, "v", DataType(Kind.STRING))


_OK_NAMES = NAMES.filter(lambda name: name not in RESERVED_NAMES and not name.startswith(RESERVED_PREFIXES))


@st.composite
def _bodies(draw: st.DrawFn) -> TableSchema:
    names = draw(st.lists(_OK_NAMES, min_size=2, max_size=5, unique=True))
    columns = [
        Column(at, name, draw(SCALAR_TYPES if at == 0 else TYPES), draw(st.none() | TEXT), draw(st.none() | TEXT))
        for at, name in enumerate(names)
    ]
    written = [column.to_json() for column in columns]
    options = draw(st.dictionaries(st.sampled_from(["bucket", "x"]), TEXT))
    return TableSchema.from_json(
        {"fields": written, "primaryKeys": names[:1], "options": options, "comment": draw(st.none() | TEXT)}
    )


@given(_bodies())
def test_json_of_any_schema_is_read_back_as_that_schema(schema: TableSchema) -> None:
    assert TableSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["k", "INT", "", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "type", "id", "description", "defaultValue", "primary-key"]), inner)
    ),
)
_MEMBERS = st.sampled_from(["fields", "primaryKeys", "partitionKeys", "options"])


@given(st.dictionaries(_MEMBERS, _JSON))
def test_any_object_is_a_schema_or_is_refused_with_its_faults(raw: Body) -> None:
    try:
        TableSchema.from_json(raw)
        refused, found = False, ()
    except Invalid as error:
        refused, found = True, error.violations
    assert bool(found) is refused


@pytest.mark.parametrize(("segment", "escaped"), [("a", "a"), ("a/b", "a~1b"), ("~1", "~01"), ("", "")])
def test_pointer_segments_are_escaped(segment: str, escaped: str) -> None:
    assert escape_pointer(segment) == escaped


@pytest.mark.parametrize(
    "raw",
    [
        body({"a\ud800": "INT"}),
        body({"r": {"type": "ROW", "fields": [{"name": "\udfff", "type": "INT"}]}}),
        body() | {"fields": [{"name": "k", "type": "INT", "description": "\ud800"}]},
        body() | {"fields": [{"name": "k", "type": "INT", "description": 5}]},
        body(comment="\ud800"),
        body(comment=5),
        body(options={"file.format": "\ud800"}),
    ],
)
def test_names_and_texts_that_could_not_be_stored_are_refused(raw: Body) -> None:
    assert faults_of(raw)
