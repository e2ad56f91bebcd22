"""Changes of a column's type and nullability: what old files can be read as, what keys allow."""

from __future__ import annotations

import pytest

from app.core.errors import Invalid
from app.core.types.datatype import ENTRIES
from app.core.types.parser import parse_type
from tests.core.alter.test_changes import alter, faults, nullable, retype, small
from tests.core.tables import table

TYPES = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "TIME(0)", "TIME(3)"),
    *("DECIMAL(5, 2)", "DECIMAL(9, 2)", "DECIMAL(6, 3)", "DECIMAL(10, 0)", "DECIMAL(12, 2)", "DECIMAL(11, 2)"),
    *("DECIMAL(20, 0)", "DECIMAL(22, 2)", "CHAR(3)", "CHAR(5)", "VARCHAR(3)", "VARCHAR(5)", "STRING"),
    *("BINARY(3)", "BINARY(5)", "VARBINARY(3)", "VARBINARY(5)", "BYTES", "TIMESTAMP(0)", "TIMESTAMP(6)"),
    *("TIMESTAMP(0) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "ARRAY<INT>", "ARRAY<BIGINT>"),
)  # fmt: skip
WIDER = {
    "TINYINT": "SMALLINT INT BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2)",
    "SMALLINT": "INT BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2)",
    "INT": "BIGINT DOUBLE DECIMAL(10,0) DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2)",
    "BIGINT": "DECIMAL(20,0) DECIMAL(22,2)",
    "FLOAT": "DOUBLE",
    "DECIMAL(5,2)": "DECIMAL(9,2) DECIMAL(6,3) DECIMAL(12,2) DECIMAL(11,2) DECIMAL(22,2)",
    "DECIMAL(9,2)": "DECIMAL(12,2) DECIMAL(11,2) DECIMAL(22,2)",
    "DECIMAL(6,3)": "",
    "DECIMAL(10,0)": "DECIMAL(12,2) DECIMAL(20,0) DECIMAL(22,2)",
    "DECIMAL(11,2)": "DECIMAL(12,2) DECIMAL(22,2)",
    "DECIMAL(12,2)": "DECIMAL(22,2)",
    "DECIMAL(20,0)": "DECIMAL(22,2)",
    "CHAR(3)": "CHAR(5) VARCHAR(3) VARCHAR(5) STRING",
    "CHAR(5)": "VARCHAR(5) STRING",
    "VARCHAR(3)": "VARCHAR(5) STRING",
    "VARCHAR(5)": "STRING",
    "BINARY(3)": "BINARY(5) VARBINARY(3) VARBINARY(5) BYTES",
    "BINARY(5)": "VARBINARY(5) BYTES",
    "VARBINARY(3)": "VARBINARY(5) BYTES",
    "VARBINARY(5)": "BYTES",
    "TIME(0)": "TIME(3)",
    "TIMESTAMP(0)": "TIMESTAMP(6)",
    "TIMESTAMP(0)WITHLOCALTIMEZONE": "TIMESTAMP(6)WITHLOCALTIMEZONE",
}


def _changes_to(old: str, new: str) -> bool:
    schema = table(columns={"k": "INT", "a": old})
    try:
        changed = alter(schema, retype("a", new))
    except Invalid as invalid:
        reported = [(fault.pointer, fault.code) for fault in invalid.violations]
        return reported != [("/changes/0/newDataType", "illegal_type_change")]
    assert (changed.by_name["a"].type, changed.by_name["a"].id) == (parse_type(new), schema.by_name["a"].id)
    return True


@pytest.mark.parametrize("old", TYPES)
def test_a_type_changes_only_to_one_that_old_files_can_be_read_as(old: str) -> None:
    wider = {new for new in TYPES if new != old and _changes_to(old, new)}
    expected = WIDER.get(old.replace(" ", ""), "").split()
    assert {new.replace(" ", "") for new in wider} == set(expected)


def test_every_widening_is_tried_here() -> None:
    kind = {text: parse_type(text).kind for text in TYPES}
    spelled = {text.replace(" ", ""): text for text in TYPES}
    tried = {(kind[spelled[old]], kind[spelled[new]]) for old, wider in WIDER.items() for new in wider.split()}
    assert tried == {(old, new) for old, entry in ENTRIES.items() for new in entry.widens}


def test_files_that_are_older_than_several_type_changes_are_still_readable() -> None:
    for old, between in WIDER.items():
        for middle in between.split():
            assert set(WIDER.get(middle, "").split()) <= set(between.split()), (old, middle)


def test_a_type_change_keeps_or_takes_the_nullability() -> None:
    schema = table(columns={"k": "INT", "a": "INT NOT NULL"})
    assert alter(schema, retype("a", "BIGINT", keep=True)).by_name["a"].type.sql == "BIGINT NOT NULL"
    assert alter(schema, retype("a", "BIGINT", keep=False)).by_name["a"].type.sql == "BIGINT"
    refusal = faults(small(), retype("a", "BIGINT NOT NULL", keep=False))
    assert refusal == [("/changes/0/newDataType", "null_to_not_null")]


def test_a_column_becomes_nullable_but_never_not_null() -> None:
    schema = table(columns={"k": "INT", "a": "INT NOT NULL"})
    assert alter(schema, nullable("a", True)).by_name["a"].nullable
    assert alter(schema, nullable("a", False)) == schema
    assert faults(small(), nullable("a", False)) == [("/changes/0/newNullability", "null_to_not_null")]
    assert faults(small(), nullable("k", True)) == [("/changes/0/newNullability", "key_column")]


def test_only_the_length_of_a_key_column_grows() -> None:
    schema = table(columns={"k": "VARCHAR(5)", "a": "INT"})
    assert alter(schema, retype("k", "VARCHAR(9)", keep=False)).by_name["k"].type.sql == "VARCHAR(9) NOT NULL"
    assert alter(schema, retype("k", "STRING")).by_name["k"].type.sql == "STRING NOT NULL"
    assert faults(small(), retype("k", "BIGINT")) == [("/changes/0/newDataType", "illegal_type_change")]
    dated = table(columns={"k": "TIMESTAMP(0)", "a": "INT"})
    assert faults(dated, retype("k", "TIMESTAMP(6)")) == [("/changes/0/newDataType", "illegal_type_change")]


def test_a_type_that_is_spelled_again_keeps_the_ids_of_its_fields() -> None:
    schema = table(columns={"k": "INT", "r": "ROW<x INT, y INT>"})
    assert alter(schema, retype("r", "ROW<x INT, y INT>")) == schema
