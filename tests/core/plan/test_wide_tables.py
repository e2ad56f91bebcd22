"""What is worked out of a table of many columns takes steps in proportion to them, not to their square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from app.core.plan.explaining.explanations import reasons
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.plan.merging.fold import lift
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.records import Record, RowKind, arrival
from app.core.table.schema import TableSchema
from app.services.tables.rules import table_rules

COLUMNS = 100


def steps(work: Callable[[], object]) -> int:
    """Lines of Python that ``work`` goes through."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def declared(engine: str, columns: int) -> dict[str, Any]:
    """A table of so many columns, in the way that costs most with its engine."""
    names = [f"c{number}" for number in range(columns)]
    options = {"merge-engine": engine}
    if engine == "aggregation":
        functions = ("sum", "max", "last_value", "listagg")
        options |= {f"fields.{name}.aggregate-function": functions[place % 4] for place, name in enumerate(names)}
    if engine == "partial-update":
        for group, first, second in zip(names[0::3], names[1::3], names[2::3], strict=False):
            options |= {f"fields.{group}.sequence-group": f"{first},{second}"}
            options |= {f"fields.{first}.aggregate-function": "sum"}
    kinds = {
        name: "STRING" if options.get(f"fields.{name}.aggregate-function") == "listagg" else "INT" for name in names
    }
    fields = [{"name": "id", "type": "INT"}, *({"name": name, "type": kind} for name, kind in kinds.items())]
    return {"fields": fields, "primaryKeys": ["id"], "options": options}


def read(engine: str, columns: int) -> Callable[[], object]:
    body = declared(engine, columns)
    return lambda: compile_plan(TableSchema.from_json(body))


def reported(engine: str, columns: int) -> Callable[[], object]:
    schema = TableSchema.from_json(declared(engine, columns))
    compile_plan(schema)
    return lambda: (table_rules(schema), table_warnings(schema))


def explained(engine: str, columns: int) -> Callable[[], object]:
    plan = compile_plan(TableSchema.from_json(declared(engine, columns)))
    values = {column.name: None if column.type.nullable else 1 for column in plan.schema.columns}
    record = Record(RowKind.INSERT, {**values, "c0": 1}, arrival(1, 0))
    before = lift(plan, record)
    return lambda: reasons(plan, before, record)


def decoded(engine: str, columns: int) -> Callable[[], object]:
    plan = compile_plan(TableSchema.from_json(declared(engine, columns)))
    return lambda: RecordDecoder(plan).decode([{"id": 1, "c0": 1}])


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
@pytest.mark.parametrize("what", [read, reported, explained, decoded])
def test_twice_the_columns_are_about_twice_the_steps(what: Callable[..., Callable[[], object]], engine: str) -> None:
    what(engine, 3)()  # what is done once for all
    once, twice = (steps(what(engine, columns)) for columns in (COLUMNS, 2 * COLUMNS))
    assert twice < 2.5 * once


def test_a_plan_is_compiled_once_for_a_schema() -> None:
    schema = TableSchema.from_json(declared("aggregation", COLUMNS))
    assert compile_plan(schema) is compile_plan(schema)
    assert steps(lambda: compile_plan(schema)) < 10
