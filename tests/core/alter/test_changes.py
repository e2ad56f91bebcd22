"""Changes of a schema: each action, what it refuses, and that all faults are told together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from app.core.alter.changes import ACTIONS, MOST_CHANGES, alter_schema
from app.core.errors import AlreadyExists, ErrorCode, Invalid, KeyfoldError
from app.core.table.schema import TableSchema
from app.core.types.datatype import walk_types
from tests.core.tables import table

AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}


def alter(schema: TableSchema, *changes: object, highest_id: int | None = None, has_rows: bool = True) -> TableSchema:
    highest = schema.highest_field_id if highest_id is None else highest_id
    return alter_schema(schema, changes, highest_id=highest, has_rows=has_rows, deepest_type=5)


def refused(schema: TableSchema, *changes: object, **how: Any) -> KeyfoldError:
    before = schema.to_json()
    with pytest.raises(KeyfoldError) as caught:
        alter(schema, *changes, **how)
    assert schema.to_json() == before
    assert all(fault.message and fault.fix for fault in caught.value.violations)
    return caught.value


def faults(schema: TableSchema, *changes: object, **how: Any) -> list[tuple[str, str]]:
    return [(fault.pointer, fault.code) for fault in refused(schema, *changes, **how).violations]


def set_option(key: str, value: object) -> dict[str, object]:
    return {"action": "setOption", "key": key, "value": value}


def remove_option(key: str) -> dict[str, object]:
    return {"action": "removeOption", "key": key}


def add(name: str, data_type: object = "INT", **more: object) -> dict[str, object]:
    return {"action": "addColumn", "fieldNames": [name], "dataType": data_type, **more}


def rename(name: str, new: str) -> dict[str, object]:
    return {"action": "renameColumn", "fieldNames": [name], "newName": new}


def drop(name: str) -> dict[str, object]:
    return {"action": "dropColumn", "fieldNames": [name]}


def retype(name: str, data_type: str, keep: bool = True) -> dict[str, object]:
    return {"action": "updateColumnType", "fieldNames": [name], "newDataType": data_type, "keepNullability": keep}


def nullable(name: str, value: bool) -> dict[str, object]:
    return {"action": "updateColumnNullability", "fieldNames": [name], "newNullability": value}


def default(name: str, text: str | None) -> dict[str, object]:
    return {"action": "updateColumnDefaultValue", "fieldNames": [name], "newDefaultValue": text}


def describe(name: str) -> dict[str, object]:
    return {"action": "updateColumnComment", "fieldNames": [name], "newComment": "x"}


def move(place: str, name: str | None, reference: str | None = None) -> dict[str, object]:
    return {"fieldName": name, "referenceFieldName": reference, "type": place}


def names(schema: TableSchema) -> str:
    return "".join(column.name for column in schema.columns)


def small(options: Mapping[str, str] | None = None) -> TableSchema:
    return table(options, {"k": "INT", "a": "INT", "b": "INT", "c": "STRING"})


def test_options_are_set_and_removed() -> None:
    schema = alter(small({"bucket": "4"}), set_option("merge.max-staged-rows", 5), remove_option("bucket"))
    assert schema.options == {"merge.max-staged-rows": "5"}
    assert alter(small(), set_option("write-only", True)).options == {"write-only": "true"}
    assert alter(small(), remove_option("bucket")) == small()


def test_no_change_gives_the_same_schema() -> None:
    assert alter(small()) == small()
    assert alter(small(), set_option("bucket", "1"), remove_option("bucket"), rename("a", "a")) == small()


def test_an_unreadable_option_is_reported_at_the_change_that_sets_it() -> None:
    assert faults(small(), add("n"), set_option("mege-engine", "x")) == [("/changes/1/value", "unknown_option")]
    assert faults(small(), set_option("path", "/mine")) == [("/changes/0/key", "path_not_allowed")]
    assert refused(small(), set_option("ignore-delete", "maybe")).code is ErrorCode.INVALID_OPTIONS


def test_the_last_change_of_an_option_is_the_one_to_blame() -> None:
    changes = [set_option("sequence.field", "nope"), set_option("sequence.field", "no")]
    assert faults(small(), *changes) == [("/changes/1/value", "unknown_column")]


def test_options_that_contradict_others_are_refused() -> None:
    schema = small({**PARTIAL, "partial-update.remove-record-on-delete": "true"})
    assert faults(schema, set_option("ignore-delete", "true")) == [("/changes/0/value", "contradicting_options")]


def test_immutable_options_change_only_while_the_table_is_empty() -> None:
    change = set_option("merge-engine", "aggregation")
    assert faults(small(), change) == [("/changes/0/value", "immutable_option")]
    assert alter(small(), change, has_rows=False).options == AGGREGATION
    assert faults(small(PARTIAL), remove_option("merge-engine")) == [("/changes/0/key", "immutable_option")]
    assert alter(small(PARTIAL), remove_option("merge-engine"), has_rows=False).options == {}


def test_the_primary_key_changes_only_while_the_table_is_empty() -> None:
    schema = alter(small(), set_option("primary-key", "a, k"), has_rows=False)
    assert (schema.primary_key, schema.by_name["a"].nullable, dict(schema.options)) == (("a", "k"), False, {})
    assert faults(small(), set_option("primary-key", "a")) == [("/changes/0/value", "immutable_option")]
    assert faults(small(), set_option("primary-key", "zz"), has_rows=False) == [("/changes/0/value", "unknown_column")]
    assert alter(small(), set_option("primary-key", "k")) == small()


def test_the_primary_key_is_never_dropped() -> None:
    assert faults(small(), {"action": "dropPrimaryKey"}, has_rows=False) == [
        ("/changes/0/action", "primary_key_needed")
    ]


def test_comments_and_defaults_are_set_and_removed() -> None:
    describe = {"action": "updateColumnComment", "fieldNames": ["a"]}
    comment = {"action": "updateComment"}
    schema = alter(small(), {**describe, "newComment": "how many"}, {**comment, "comment": "wide"}, default("a", "7"))
    assert (schema.by_name["a"].description, schema.comment, schema.by_name["a"].default) == ("how many", "wide", "7")
    assert alter(schema, {**describe, "newComment": None}, {**comment, "comment": None}, default("a", None)) == small()


def test_a_default_of_another_type_is_refused_at_the_change_that_made_it_so() -> None:
    assert faults(small(), default("a", "one"), rename("a", "z")) == [("/changes/0/newDefaultValue", "illegal_default")]
    schema = alter(table(columns={"k": "INT", "a": "INT"}), default("a", "12"))
    assert alter(schema, retype("a", "BIGINT")).by_name["a"].default == "12"


def test_a_column_is_added_where_it_should_be() -> None:
    assert names(alter(small(), add("n"))) == "kabcn"
    assert names(alter(small(), add("n", move=move("FIRST", "n")))) == "nkabc"
    assert names(alter(small(), add("n", move=move("LAST", "n")))) == "kabcn"
    assert names(alter(small(), add("n", move=move("AFTER", "n", "a")))) == "kanbc"
    assert names(alter(small(), add("n", move=move("before", None, "a")))) == "knabc"
    added = alter(small(), add("n", "DECIMAL(10,2)", comment="price")).by_name["n"]
    assert (added.id, added.type.sql, added.description, added.nullable) == (4, "DECIMAL(10, 2)", "price", True)


def test_a_column_moves_whichever_way() -> None:
    schema = small()
    for (name, reference), place in itertools.product(itertools.permutations("kabc", 2), ("AFTER", "BEFORE")):
        moved = alter(schema, {"action": "updateColumnPosition", "move": move(place, name, reference)})
        order = [one for one in "kabc" if one != name]
        order.insert(order.index(reference) + (place == "AFTER"), name)
        assert names(moved) == "".join(order)
    assert names(alter(schema, {"action": "updateColumnPosition", "move": move("FIRST", "b")})) == "bkac"
    assert names(alter(schema, {"action": "updateColumnPosition", "move": move("LAST", "a")})) == "kbca"


@pytest.mark.parametrize(
    ("wrong", "pointer", "code"),
    [
        (move("UP", "a"), "/move/type", "unknown_move"),
        (move("AFTER", "a"), "/move/referenceFieldName", "missing"),
        (move("AFTER", "a", "a"), "/move/referenceFieldName", "illegal_move"),
        (move("AFTER", "a", "zz"), "/move/referenceFieldName", "unknown_column"),
        (move("FIRST", "zz"), "/move/fieldName", "unknown_column"),
        (move("FIRST", None), "/move/fieldName", "missing"),
        ({"type": "FIRST", "fieldName": 5}, "/move/fieldName", "not_text"),
        ("FIRST", "/move", "not_an_object"),
    ],
)
def test_moves_that_lead_nowhere_are_refused(wrong: object, pointer: str, code: str) -> None:
    found = faults(small(), {"action": "updateColumnPosition", "move": wrong})
    assert found == [(f"/changes/0{pointer}", code)]


def test_a_new_column_is_nullable_new_and_not_too_deep() -> None:
    assert faults(small(), add("n", "INT NOT NULL")) == [("/changes/0/dataType", "not_null_column")]
    assert faults(small(), add("_kf_x")) == [("/changes/0/fieldNames/0", "reserved_name")]
    assert faults(small(), add("n", "ARRAY<" * 6 + "INT" + ">" * 6)) == [("/changes/0/dataType", "nested_too_deeply")]
    assert faults(small(), add("n", move=move("FIRST", "a"))) == [("/changes/0/move/fieldName", "illegal_move")]
    assert faults(small(), add("n", "INTT")) == [("/changes/0/dataType", "unknown_type")]


def test_a_column_that_exists_is_distinguished_from_one_that_is_missing() -> None:
    exists, missing = refused(small(), add("a")), refused(small(), drop("zz"))
    assert (type(exists), exists.resource_type, exists.resource_name) == (AlreadyExists, "COLUMN", "a")
    assert (type(missing), missing.resource_type, missing.resource_name) == (Invalid, "COLUMN", "zz")
    assert type(refused(small(), rename("a", "b"))) is AlreadyExists
    both = refused(small(), add("a"), drop("zz"))
    assert (type(both), len(both.violations), both.code) == (Invalid, 2, ErrorCode.INVALID_SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        drop,
        lambda n: rename(n, "x"),
        lambda n: retype(n, "INT"),
        lambda n: default(n, "1"),
        lambda n: nullable(n, True),
        describe,
    ],
)
def test_every_change_of_a_column_needs_it(change: Any) -> None:
    error = refused(small(), change("zz"))
    assert (type(error), error.code) == (Invalid, ErrorCode.COLUMN_NOT_FOUND)


def test_ids_never_come_again() -> None:
    schema = alter(small(), drop("c"), add("c"))
    assert schema.by_name["c"].id == 4
    assert alter(alter(small(), drop("c")), add("n"), highest_id=3).by_name["n"].id == 4
    assert alter(small(), add("n"), drop("n"), add("m")).by_name["m"].id == 5


def test_fields_of_a_new_row_get_ids_of_their_own() -> None:
    row = {
        "type": "ROW",
        "fields": [{"id": 0, "name": "x", "type": "INT"}, {"id": 1, "name": "y", "type": "ROW<z INT>"}],
    }
    schema = alter(small(), add("r", {"type": "ARRAY", "element": row}), add("n"), highest_id=20)
    ids = [field.id for inner in walk_types(schema.by_name["r"].type) for field in inner.fields]
    assert (schema.by_name["r"].id, sorted(ids), schema.by_name["n"].id) == (21, [22, 23, 24], 25)


def test_ids_that_no_file_can_hold_are_not_given() -> None:
    assert faults(small(), add("n"), highest_id=2**31 - 1) == [("/changes/0", "no_free_id")]


def test_a_rename_keeps_the_id_and_rewrites_options_and_keys() -> None:
    options = {
        **PARTIAL,
        "fields.g.sequence-group": "a,b",
        "fields.a.aggregate-function": "sum",
        "partial-update.remove-record-on-sequence-group": "g",
        "rowkind.field": "c",
    }
    schema = table(options, {"k": "INT", "g": "INT", "a": "INT", "b": "INT", "c": "STRING"})
    changes = [rename(old, new) for old, new in (("k", "key"), ("g", "version"), ("a", "total"), ("c", "kind"))]
    renamed = alter(schema, *changes)
    assert [column.id for column in renamed.columns] == [column.id for column in schema.columns]
    assert renamed.primary_key == ("key",)
    assert renamed.options == {
        **PARTIAL,
        "fields.version.sequence-group": "total,b",
        "fields.total.aggregate-function": "sum",
        "partial-update.remove-record-on-sequence-group": "version",
        "rowkind.field": "kind",
    }


def test_names_can_be_swapped_by_three_renames() -> None:
    schema = alter(small({"sequence.field": "a"}), rename("a", "x"), rename("b", "a"), rename("x", "b"))
    assert (names(schema), schema.options["sequence.field"]) == ("kbac", "b")


@pytest.mark.parametrize("name", ["a,b", "x.y", " x"])
def test_a_column_that_options_name_keeps_a_name_that_options_can_say(name: str) -> None:
    assert faults(small({"sequence.field": "a"}), rename("a", name)) == [("/changes/0/newName", "illegal_name")]
    assert alter(small(), rename("a", name)).by_name[name].id == 1


def test_partition_columns_are_neither_renamed_nor_dropped() -> None:
    schema = TableSchema.from_json({**small().to_json(), "partitionKeys": ["k"]})
    assert faults(schema, rename("k", "z")) == [("/changes/0/fieldNames/0", "partition_column")]
    assert faults(schema, drop("k")) == [("/changes/0/fieldNames/0", "key_column")]
    assert faults(small(), drop("k")) == [("/changes/0/fieldNames/0", "key_column")]


def test_a_dropped_column_is_gone() -> None:
    assert names(alter(small(), drop("a"))) == "kbc"


def test_a_column_that_options_name_is_not_dropped() -> None:
    schema = table(
        {**AGGREGATION, "sequence.field": "b,a", "fields.a.ignore-retract": "true"},
        {"k": "INT", "a": "INT", "b": "INT"},
    )
    error = refused(schema, set_option("bucket", "1"), drop("a"))
    assert [(fault.pointer, fault.code) for fault in error.violations] == [("/changes/1", "column_in_use")] * 2
    assert "sequence.field" in error.violations[0].message
    assert "fields.a.ignore-retract" in error.violations[1].message


def test_a_column_is_dropped_with_the_options_that_name_it_in_either_order() -> None:
    schema = small({"sequence.field": "b,a", "fields.a.default-value": "1"})
    frees = [set_option("sequence.field", "b"), remove_option("fields.a.default-value")]
    for changes in ([*frees, drop("a")], [drop("a"), *frees]):
        assert alter(schema, *changes).options == {"sequence.field": "b"}


def test_options_of_a_dropped_column_do_not_pass_to_another_one_of_its_name() -> None:
    schema = small({"sequence.field": "a"})
    assert faults(schema, drop("a"), add("a")) == [("/changes/0", "column_in_use")]
    assert faults(schema, drop("a"), rename("b", "a")) == [("/changes/0", "column_in_use")]
    assert alter(schema, drop("a"), add("a"), set_option("sequence.field", "a")).by_name["a"].id == 4


def test_a_function_of_the_wrong_column_is_reported_at_the_change_that_brought_them_together() -> None:
    schema = table({**AGGREGATION, "fields.default-aggregate-function": "sum"}, {"k": "INT", "a": "INT"})
    later = set_option("bucket", "1")
    assert faults(schema, add("n", "STRING"), later) == [("/changes/0/fieldNames/0", "illegal_function_type")]
    own = set_option("fields.a.aggregate-function", "listagg")
    assert faults(schema, own, later) == [("/changes/0/value", "illegal_function_type")]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_missing_member_is_named(action: str) -> None:
    needed = [member for member in ACTIONS[action].members if member.needed]
    if needed:
        found = faults(small(), {"action": action})
        assert found == [(f"/changes/0/{member.name}", "missing") for member in needed]


@pytest.mark.parametrize("action", ACTIONS)
def test_members_of_another_type_are_refused(action: str) -> None:
    members = [member.name for member in ACTIONS[action].members]
    found = faults(small(), {"action": action} | {name: [[5]] for name in members})
    expected = members or ["action"]
    assert [pointer for pointer, _ in found] == [f"/changes/0/{name}" for name in expected]


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        (5, "/changes/0", "not_an_object"),
        ({}, "/changes/0/action", "unknown_action"),
        ({"action": "explode"}, "/changes/0/action", "unknown_action"),
        ({"action": ["addColumn"]}, "/changes/0/action", "unknown_action"),
    ],
)
def test_what_is_no_change_is_refused(change: object, pointer: str, code: str) -> None:
    assert faults(small(), change) == [(pointer, code)]


def test_too_many_changes_are_refused_at_once() -> None:
    assert faults(small(), *[add("n")] * (MOST_CHANGES + 1)) == [("/changes", "too_many_changes")]


def test_all_faults_are_reported_together_and_changes_go_on_after_a_fault() -> None:
    found = faults(
        small({"sequence.field": "b"}),
        add("n", "INTT"),
        set_option("fields.n.default-value", "1"),  # n would be there
        rename("zz", "y"),
        drop("k"),
        drop("b"),
        set_option("merge-engine", "first-row"),
        set_option("ignore-dlete", "true"),
        {"action": "explode"},
    )
    assert found == [
        ("/changes/0/dataType", "unknown_type"),
        ("/changes/2/fieldNames/0", "unknown_column"),
        ("/changes/3/fieldNames/0", "key_column"),
        ("/changes/7/action", "unknown_action"),
        ("/changes/4", "column_in_use"),
        ("/changes/6/value", "unknown_option"),
        ("/changes/5/value", "immutable_option"),
    ]


def test_a_column_is_not_to_blame_for_a_message_that_quotes_its_name() -> None:
    schema = table({"fields.a.aggregate-function": "zzz"})  # deduplicate has no functions
    changes = (set_option("merge-engine", "aggregation"), add("zzz"))
    assert faults(schema, *changes, has_rows=False) == [("/changes/0/value", "unknown_function")]


@pytest.mark.parametrize("name", ["k", "a", "b"])
def test_any_column_of_a_table_by_sequence_that_ignores_deletes_is_renamed(name: str) -> None:
    columns = {"k": "INT NOT NULL", "a": "INT", "b": "INT"}
    ordered = table({"sequence.field": "a", "merge-engine": "deduplicate"}, columns)
    before = alter(ordered, set_option("ignore-delete", "true"))
    assert before.remembers_removals
    after = alter(before, rename(name, "renamed"))
    assert after.remembers_removals
    assert "renamed" in after.by_name
    assert alter(ordered, rename(name, "renamed"), set_option("ignore-delete", "true")).remembers_removals
