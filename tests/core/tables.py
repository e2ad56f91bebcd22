"""Tables for tests of options, plans and records: a key ``k`` and any number of named columns."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.core.errors import ErrorCode, Invalid, Violation
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.schema import TableSchema
from tests.builders import schema_of
from tests.oracle import TableCase

COLUMNS = {
    "k": "INT",
    "p": "STRING",
    "a": "INT",
    "b": "INT",
    "c": "STRING",
    "d": "DECIMAL(5, 2)",
    "f": "DOUBLE",
    "g": "INT",
    "h": "INT",
    "t": "TIMESTAMP(3)",
    "o": "BOOLEAN",
    "x": "VARBINARY(4)",
    "l": "ARRAY<INT>",
    "r": "ROW<y INT>",
}


def table(
    options: Mapping[str, str] | None = None, columns: Mapping[str, str] = COLUMNS, key: str = "k"
) -> TableSchema:
    """A schema; ``key`` is the primary key's columns, comma-separated."""
    return schema_of(TableCase(tuple(columns.items()), tuple(key.split(",")), options or {}))


def plan(options: Mapping[str, str] | None = None, columns: Mapping[str, str] = COLUMNS, key: str = "k") -> MergePlan:
    """The merge plan of such a table."""
    return compile_plan(table(options, columns, key))


def violations(schema: TableSchema) -> tuple[Violation, ...]:
    """What is wrong with the options of ``schema``."""
    with pytest.raises(Invalid) as caught:
        compile_plan(schema)
    assert caught.value.code is ErrorCode.INVALID_OPTIONS
    assert caught.value.violations
    assert all(violation.message and violation.fix for violation in caught.value.violations)
    return caught.value.violations


def faults(schema: TableSchema) -> set[tuple[str, str]]:
    """(option key, code) of everything that is wrong with the options of ``schema``."""
    prefix = "/options/"
    return {(v.pointer.removeprefix(prefix).replace("~1", "/").replace("~0", "~"), v.code) for v in violations(schema)}
