"""What the types say of themselves: their SQL, Spark's type for them, where they may stand."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given

from app.core.types.datatype import DataType, highest_field_id, walk_types
from app.core.types.kinds import Kind
from app.core.types.parser import parse_type
from tests.core.strategies import TYPES

SPARK = {
    **{kind: kind for kind in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE")},
    "DECIMAL(10, 2)": "DECIMAL(10,2)",
    "CHAR(3)": "STRING",
    "VARCHAR(3)": "STRING",
    "STRING": "STRING",
    "BINARY(3)": "BINARY",
    "VARBINARY(3)": "BINARY",
    "BYTES": "BINARY",
    "TIME(3)": "INT",
    "TIMESTAMP(3)": "TIMESTAMP_NTZ",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": "TIMESTAMP",
    "ARRAY<INT NOT NULL>": "ARRAY<INT>",
    "MULTISET<STRING>": "MAP<STRING, INT>",
    "MAP<INT, STRING>": "MAP<INT, STRING>",
    "ROW<`a` INT, `b``c` STRING>": "STRUCT<`a`: INT, `b``c`: STRING>",
}
NESTED = ("ARRAY", "MULTISET", "MAP", "ROW")


@pytest.mark.parametrize("sql", SPARK)
def test_a_type_is_spelled_as_paimon_does_and_held_by_spark(sql: str) -> None:
    data_type = parse_type(sql)
    assert (data_type.sql, data_type.spark) == (sql, SPARK[sql])


def test_the_list_above_holds_every_kind_of_type() -> None:
    assert {parse_type(sql).kind for sql in SPARK} == set(Kind)


@pytest.mark.parametrize("sql", SPARK)
def test_not_null_is_said_last_and_does_not_reach_spark(sql: str) -> None:
    data_type = parse_type(sql).with_nullable(False)
    assert (data_type.sql, data_type.base_sql, data_type.spark) == (f"{sql} NOT NULL", sql, SPARK[sql])


@pytest.mark.parametrize("sql", SPARK)
def test_only_scalars_are_keys_and_have_an_order(sql: str) -> None:
    data_type = parse_type(sql)
    scalar = data_type.kind not in NESTED
    assert (data_type.legal_key, data_type.comparable) == (scalar, scalar)
    assert bool(data_type.nested) is not scalar


def test_types_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DataType(Kind.INT).kind = Kind.BIGINT  # type: ignore[misc]  # that is the test


def test_walking_a_type_meets_everything_inside_it_from_outside_in() -> None:
    found = [t.kind for t in walk_types(parse_type("ROW<a MAP<INT, ARRAY<DATE>>, b MULTISET<STRING>>"))]
    assert found == ["ROW", "MAP", "INT", "ARRAY", "DATE", "MULTISET", "STRING"]


def test_the_highest_field_id_is_found_at_any_depth() -> None:
    inner = {"type": "ROW", "fields": [{"id": 41, "name": "x", "type": "INT"}]}
    outer = {"type": "ROW", "fields": [{"id": 2, "name": "a", "type": {"type": "ARRAY", "element": inner}}]}
    assert highest_field_id(parse_type(outer)) == 41
    assert highest_field_id(parse_type("ARRAY<INT>")) == -1


@given(TYPES)
def test_equal_types_have_equal_hashes_and_nullability_tells_types_apart(data_type: DataType) -> None:
    twin = data_type.with_nullable(data_type.nullable)
    assert (twin, hash(twin)) == (data_type, hash(data_type))
    assert data_type.with_nullable(not data_type.nullable) != data_type
