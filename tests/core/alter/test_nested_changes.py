"""Changes inside ROW, ARRAY and MAP columns, by path: what they give, what they refuse, which options follow."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.errors import AlreadyExists, Invalid
from app.core.plan.merging.evolution import same_fold
from app.core.table.schema import TableSchema
from app.core.types.datatype import walk_types
from tests.core.alter.test_changes import alter, default, faults, move, refused, set_option
from tests.core.tables import table

COLUMNS = {
    "k": "INT",
    "r": "ROW<a INT, b STRING, in ROW<x FLOAT>>",
    "items": "ARRAY<ROW<sku INT, n INT, at INT>>",
    "m": "MAP<STRING, ROW<v INT, t INT>>",
    "deep": "ARRAY<MAP<INT, ARRAY<INT>>>",
    "s": "MULTISET<INT>",
}
NESTED = {
    "merge-engine": "aggregation",
    "fields.items.aggregate-function": "nested_update",
    "fields.items.nested-key": "sku , at",
    "fields.items.nested-sequence-field": "n",
    "fields.m.aggregate-function": "merge_map_with_keytime",
    "fields.m.ts-field": "t",
}


def nested(options: dict[str, str] | None = None) -> TableSchema:
    return table(options, COLUMNS)


def on(action: str, path: str, **members: Any) -> dict[str, Any]:
    return {"action": action, "fieldNames": path.split("."), **members}


def add(path: str, data_type: object = "INT", **more: Any) -> dict[str, Any]:
    return on("addColumn", path, dataType=data_type, **more)


def rename(path: str, new: str) -> dict[str, Any]:
    return on("renameColumn", path, newName=new)


def drop(path: str) -> dict[str, Any]:
    return on("dropColumn", path)


def retype(path: str, new: str, keep: bool = True) -> dict[str, Any]:
    return on("updateColumnType", path, newDataType=new, keepNullability=keep)


def nullable(path: str, value: bool) -> dict[str, Any]:
    return on("updateColumnNullability", path, newNullability=value)


def changed(column: str, *changes: object) -> str:
    return alter(nested(), *changes).by_name[column].type.base_sql


def test_fields_are_added_last_or_where_the_move_says() -> None:
    assert changed("r", add("r.c", "ROW<y INT>")) == ("ROW<`a` INT, `b` STRING, `in` ROW<`x` FLOAT>, `c` ROW<`y` INT>>")
    places = [move("FIRST", None), move("LAST", "c"), move("AFTER", None, "v"), move("BEFORE", None, "t")]
    found = [changed("m", add("m.value.c", move=place)) for place in places]
    rows = ["`c` INT, `v` INT, `t` INT", "`v` INT, `t` INT, `c` INT", *["`v` INT, `c` INT, `t` INT"] * 2]
    assert found == [f"MAP<STRING, ROW<{row}>>" for row in rows]


def test_fields_are_renamed_dropped_described_and_widened() -> None:
    assert changed("r", rename("r.in.x", "y")) == "ROW<`a` INT, `b` STRING, `in` ROW<`y` FLOAT>>"
    assert changed("r", rename("r.a", "a")) == nested().by_name["r"].type.base_sql
    assert changed("items", drop("items.element.n")) == "ARRAY<ROW<`sku` INT, `at` INT>>"
    assert changed("m", retype("m.value.v", "BIGINT")) == "MAP<STRING, ROW<`v` BIGINT, `t` INT>>"
    assert changed("r", retype("r.in.x", "DOUBLE")) == "ROW<`a` INT, `b` STRING, `in` ROW<`x` DOUBLE>>"
    row = alter(nested(), on("updateColumnComment", "r.b", newComment="what")).by_name["r"].type
    assert [field.description for field in row.fields] == [None, "what", None]


def test_elements_and_values_are_widened_whatever_stands_around_them() -> None:
    assert changed("deep", retype("deep.element.value.element", "BIGINT")) == "ARRAY<MAP<INT, ARRAY<BIGINT>>>"
    # Paimon looks at neither word.
    assert changed("deep", retype("deep.value.element.value", "DOUBLE")) == "ARRAY<MAP<INT, ARRAY<DOUBLE>>>"


def test_what_is_inside_becomes_nullable_but_never_not_null() -> None:
    schema = table(columns={"k": "INT", "r": "ROW<a INT NOT NULL>", "l": "ARRAY<INT NOT NULL>"})
    loose = alter(schema, nullable("r.a", True), retype("l.element", "BIGINT", keep=False))
    assert [loose.by_name[name].type.base_sql for name in "rl"] == ["ROW<`a` INT>", "ARRAY<BIGINT>"]
    assert faults(nested(), nullable("r.a", False)) == [("/changes/0/newNullability", "null_to_not_null")]
    assert faults(nested(), retype("deep.element", "MAP<INT, ARRAY<INT>> NOT NULL", keep=False)) == [
        ("/changes/0/newDataType", "null_to_not_null")
    ]


def test_ids_stay_and_never_come_again() -> None:
    schema = nested()
    before = {field.name: field.id for field in schema.by_name["r"].type.fields}
    changes = [
        rename("r.a", "z"),
        drop("r.b"),
        add("r.b", {"type": "ROW", "fields": [{"id": 0, "name": "a", "type": "INT"}]}),
    ]
    after = alter(schema, *changes, highest_id=99).by_name["r"].type
    assert [(field.name, field.id) for field in after.fields] == [("z", before["a"]), ("in", before["in"]), ("b", 100)]
    assert [field.id for field in after.fields[-1].type.fields] == [101]
    ids = [
        field.id for column in alter(schema, *changes).columns for t in walk_types(column.type) for field in t.fields
    ]
    assert len(set(ids)) == len(ids)


def test_options_follow_a_renamed_field() -> None:
    options = alter(nested(NESTED), rename("items.element.sku", "code"), rename("m.value.t", "time")).options
    assert options["fields.items.nested-key"].replace(" ", "") == "code,at"
    schema = alter(nested(NESTED), rename("items.element.n", "seq"), rename("items.element.at", "place"))
    assert schema.options["fields.items.nested-sequence-field"] == "seq"
    assert [one.strip() for one in schema.options["fields.items.nested-key"].split(",")] == ["sku", "place"]
    assert options["fields.m.ts-field"] == "time"
    assert alter(nested(NESTED), rename("r.a", "sku")).options == NESTED
    assert faults(nested(NESTED), rename("items.element.sku", "a,b")) == [("/changes/0/newName", "illegal_name")]
    assert alter(nested(), rename("items.element.sku", "a,b")).columns[2].type.element_type.fields[0].name == "a,b"


def test_a_field_that_options_name_is_dropped_only_with_them() -> None:
    schema = nested(NESTED)
    for path in ("items.element.sku", "items.element.n", "m.value.t"):
        assert faults(schema, drop(path)) == [("/changes/0", "column_in_use")]
        assert path in refused(schema, drop(path)).violations[0].message
    freed = alter(schema, drop("items.element.at"), set_option("fields.items.nested-key", "sku"))
    assert freed.options["fields.items.nested-key"] == "sku"


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        (drop("r.zz"), "/fieldNames/1", "unknown_column"),
        (drop("zz.a"), "/fieldNames/0", "unknown_column"),
        (drop("r.in.zz"), "/fieldNames/2", "unknown_column"),
        (drop("r.a.b"), "/fieldNames/2", "illegal_path"),
        (drop("r.a.b.c"), "/fieldNames/2", "illegal_path"),
        (add("k.x"), "/fieldNames/1", "illegal_path"),
        (retype("k.x", "BIGINT"), "/fieldNames/1", "illegal_path"),
        (drop("items.sku"), "/fieldNames/1", "illegal_path"),
        (drop("items.element"), "/fieldNames/1", "illegal_path"),
        (rename("deep.element.value.element", "x"), "/fieldNames/3", "illegal_path"),
        (retype("m.key", "STRING"), "/fieldNames/1", "illegal_path"),
        (retype("s.element", "BIGINT"), "/fieldNames/1", "illegal_path"),
        (drop("r.in.x"), "/fieldNames/2", "last_field"),
        (add("r.a"), "/fieldNames/1", "duplicate_column"),
        (rename("r.a", "b"), "/newName", "duplicate_column"),
        (add("r.c", "INT NOT NULL"), "/dataType", "not_null_column"),
        (add("r.c", move=move("AFTER", None, "zz")), "/move/referenceFieldName", "unknown_column"),
        (add("r.c", move=move("AFTER", None, "c")), "/move/referenceFieldName", "illegal_move"),
        (add("r.c", move=move("FIRST", "a")), "/move/fieldName", "illegal_move"),
        (add("r.in.d", "ROW<a ROW<b ROW<c INT>>>"), "/dataType", "nested_too_deeply"),
        (retype("r.a", "STRING"), "/newDataType", "illegal_type_change"),
        (retype("r.in", "ROW<x DOUBLE>"), "/newDataType", "illegal_type_change"),
        ({"action": "dropColumn", "fieldNames": []}, "/fieldNames", "not_a_list"),
        ({"action": "dropColumn", "fieldNames": ["r", ""]}, "/fieldNames", "not_a_list"),
        ({"action": "dropColumn", "fieldNames": ["r", 1]}, "/fieldNames", "not_a_list"),
        ({**default("r", "1"), "fieldNames": ["r", "a"]}, "/fieldNames", "nested_column"),
    ],
)
def test_a_path_or_change_that_cannot_be_is_refused_where_it_is_wrong(
    change: dict[str, Any], pointer: str, code: str
) -> None:
    assert faults(nested(), change) == [(f"/changes/0{pointer}", code)]


def test_paimons_clients_are_reported_which_nested_column_is_missing_or_exists() -> None:
    missing, exists = refused(nested(), drop("r.zz")), refused(nested(), add("r.a"))
    assert (type(missing), missing.resource_name) == (Invalid, "r.zz")
    assert (type(exists), exists.resource_name) == (AlreadyExists, "r.a")


def test_changes_inside_a_column_follow_each_other_and_are_told_of_together() -> None:
    schema = alter(nested(), add("r.c", "ROW<y INT>"), add("r.c.z"), rename("r.c", "d"), drop("r.d.y"))
    assert schema.by_name["r"].type.fields[-1].type.base_sql == "ROW<`z` INT>"
    assert [code for _, code in faults(nested(), drop("r.zz"), rename("r.a", "b"))] == [
        "unknown_column",
        "duplicate_column",
    ]


@pytest.mark.parametrize("options", [{}, NESTED])
def test_changes_inside_a_column_leave_the_meaning_of_old_state_alone(options: dict[str, str]) -> None:
    """A last field that goes is the time of ``merge_map_with_keytime`` only, and only where it has no ``ts-field``."""
    changes = [add("items.element.x"), rename("items.element.sku", "code"), retype("m.value.t", "BIGINT"), drop("r.b")]
    before = alter(nested(options), add("items.element.last"))
    assert same_fold(before, alter(before, *changes, drop("items.element.last"), add("m.value.last")))
