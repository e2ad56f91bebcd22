"""What one table may declare is bounded, and nothing is worked out of what is beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.core.errors import Conflict, ErrorCode, FaultCode, Invalid
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import (
    LONGEST_NAME,
    LONGEST_OPTION,
    LONGEST_OPTION_KEY,
    LONGEST_TYPE,
    MOST_KEY_COLUMNS,
    MOST_OPTIONS,
    MOST_SCHEMA_BYTES,
    CatalogBounds,
    SchemaBounds,
)
from tests.services.builders import schema

BOUNDS = SchemaBounds(columns=10)


def body(columns: int = 2, **members: Any) -> dict[str, Any]:
    fields = [{"name": f"c{number}", "type": "INT"} for number in range(columns)]
    return {"fields": fields, "primaryKeys": ["c0"], "options": {}} | members


def row(fields: int) -> str:
    return f"ROW<{', '.join(f'f{number} DECIMAL(10, 2)' for number in range(fields))}>"


def nested(kind: Any) -> dict[str, Any]:
    return body(fields=[{"name": "c0", "type": "INT"}, {"name": "r", "type": kind}])


def deep_object(fields: int) -> dict[str, Any]:
    return {"type": "ROW", "fields": [{"name": f"f{number}", "type": "INT"} for number in range(fields)]}


def codes(declared: Any) -> list[tuple[str, FaultCode]]:
    with pytest.raises(Invalid) as refused:
        BOUNDS.check_declared(declared)
    return [(fault.pointer, fault.code) for fault in refused.value.violations]


BEYOND: dict[str, tuple[dict[str, Any], str, FaultCode]] = {
    "columns": (body(11), "/fields", FaultCode.TOO_MANY),
    "fields in the text of a type": (nested(row(50)), "/fields", FaultCode.TOO_MANY),
    "fields in the object of a type": (nested(deep_object(20_000)), "/fields", FaultCode.TOO_MANY),
    "values that mean nothing": (body(unknown=[0] * 30_000), "/fields", FaultCode.TOO_MANY),
    "columns of the key": (body(primaryKeys=["c0"] * (MOST_KEY_COLUMNS + 1)), "/primaryKeys", FaultCode.TOO_MANY),
    "partition columns": (body(partitionKeys=["c0"] * (MOST_KEY_COLUMNS + 1)), "/partitionKeys", FaultCode.TOO_MANY),
    "a name": (body(fields=[{"name": "x" * (LONGEST_NAME + 1)}]), "/fields/0/name", FaultCode.NAME_TOO_LONG),
    "a type": (nested("x" * (LONGEST_TYPE + 1)), "/fields/1/type", FaultCode.TOO_LONG),
    "the value of an option": (body(options={"a": "x" * (LONGEST_OPTION + 1)}), "/options/a", FaultCode.TOO_LONG),
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_is_beyond_the_bounds_is_named(what: str) -> None:
    declared, pointer, code = BEYOND[what]
    assert codes(declared) == [(pointer, code)]


def test_a_refusal_says_the_bound_what_was_sent_and_what_to_do() -> None:
    with pytest.raises(Invalid, match="at most 10 columns and fields inside them, the request declares 11") as refused:
        BOUNDS.check_declared(body(11))
    assert refused.value.code is ErrorCode.INVALID_SCHEMA
    assert "split the table" in refused.value.violations[0].fix


def test_a_long_key_of_an_option_is_not_told_again_and_again() -> None:
    with pytest.raises(Invalid) as refused:
        BOUNDS.check_declared(body(options={"k" * (LONGEST_OPTION_KEY + 1): "x"}))
    fault = refused.value.violations[0]
    assert (refused.value.code, fault.code) == (ErrorCode.INVALID_OPTIONS, FaultCode.TOO_LONG)
    assert len(fault.pointer) < LONGEST_OPTION_KEY


def test_too_many_options_are_named_once() -> None:
    assert codes(body(options={str(number): "" for number in range(MOST_OPTIONS + 1)})) == [
        ("/options", FaultCode.TOO_MANY)
    ]


@pytest.mark.parametrize("declared", [body(10), nested(row(8)), nested(deep_object(8)), {}, {"fields": 5}])
def test_what_is_within_the_bounds_passes(declared: dict[str, Any]) -> None:
    BOUNDS.check_declared(declared)


@pytest.mark.parametrize("kind", [row(9), deep_object(9), f"ARRAY<{row(9)}>", f"MAP<INT, {row(9)}>"])
def test_fields_inside_columns_are_counted_once_they_are_read(kind: Any) -> None:
    schema = TableSchema.from_json(nested(kind))
    assert len(schema.declared_names) == 11
    assert [(fault.pointer, fault.code) for fault in BOUNDS.faults(schema)] == [("/fields", FaultCode.TOO_MANY)]
    assert not [*SchemaBounds(11).faults(schema)]


def test_names_of_fields_are_bounded_like_those_of_columns() -> None:
    schema = TableSchema.from_json(nested(f"ROW<{'x' * (LONGEST_NAME + 1)} INT>"))
    assert [fault.code for fault in BOUNDS.faults(schema)] == [FaultCode.NAME_TOO_LONG]


def test_a_schema_as_a_whole_is_bounded() -> None:
    fields = [{"name": f"c{number}", "type": "INT", "description": "x" * 2**20} for number in range(5)]
    schema = TableSchema.from_json(body(fields=fields))
    assert MOST_SCHEMA_BYTES < 5 * 2**20
    assert [fault.code for fault in BOUNDS.faults(schema)] == [FaultCode.TOO_LONG]


def test_a_table_that_is_beyond_the_bounds_already_may_be_altered_but_not_grow() -> None:
    wide, wider = (TableSchema.from_json(body(columns)) for columns in (12, 13))
    assert not [*BOUNDS.faults(wide, before=wide)]
    assert [fault.code for fault in BOUNDS.faults(wider, before=wide)] == [FaultCode.TOO_MANY]


@pytest.mark.parametrize("declared", ["TIME(4)", "ARRAY<TIME(6)>", "ROW<a INT, b TIME(9)>"])
def test_a_time_of_more_digits_than_are_held_is_refused_unless_it_is_there(declared: str) -> None:
    bounds = SchemaBounds()
    [fault] = bounds.faults(schema(("id", "BIGINT"), ("at", declared)))
    assert (fault.code, fault.pointer) == (FaultCode.OUT_OF_RANGE, "/fields/1/type")
    before = schema(("id", "BIGINT"), ("at", declared))
    assert not [*bounds.faults(schema(("id", "BIGINT"), ("at", declared), ("n", "INT")), before)]
    assert not [*bounds.faults(schema(("id", "BIGINT"), ("at", "TIME(3)")))]


@pytest.mark.parametrize("check", [CatalogBounds.check_databases, CatalogBounds.check_tables])
def test_a_full_catalog_says_what_may_be_done(check: Callable[[CatalogBounds, int], None]) -> None:
    bounds = CatalogBounds(databases=3, tables=3)
    check(bounds, 2)
    with pytest.raises(Conflict, match=r"at most 3 are allowed; drop .* or use another service") as refused:
        check(bounds, 3)
    assert refused.value.code is ErrorCode.CATALOG_FULL
