"""A schema and records, folded in one order and in another, in these batches and in those; nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import FaultCode, Invalid, Violation
from app.core.plan.explanations import column_words, depends_on_arrival
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.plan.story_lanes import StoryLane, story_lanes
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds
from app.services.ddl import declared_tables
from app.services.json_bodies import parse_json
from app.services.simulations import SimulatedRow, merged_in_batches, simulate_merge
from app.services.tables import validate_table

MOST_LINES = 200


@dataclass(frozen=True)
class Difference:
    """A column that another order gave another value, and why it may: its rule, whether arrival decides in it."""

    key: Mapping[str, Any]
    column: str
    posted: Any
    moved: Any
    rule: str
    by_arrival: bool


@dataclass(frozen=True)
class Played:
    """The rows that the records come to. ``in_batches``: whether each batch folded by itself comes to the same;
    ``differences`` are those from what the records came to as they were posted.
    """

    schema: TableSchema
    lanes: Sequence[StoryLane]
    rows: Sequence[SimulatedRow]
    batches: Sequence[Sequence[str]]
    in_batches: bool
    moved: bool
    differences: Sequence[Difference]


def play(schema_text: str, records: str, posted: str, bounds: CatalogBounds = DEFAULT_BOUNDS) -> Played:
    """``records`` are JSON objects, one a line, an empty line ends a batch; ``posted`` are the same in another order.

    Raises ``Invalid`` for a schema or records that a table could not have, ``TooLarge``.
    """
    schema = _schema(schema_text, bounds)
    plan = compile_plan(schema)
    batches, first = _batches(records), _batches(posted)
    lines = [line for batch in batches for line in batch]
    others = [line for batch in first for line in batch]
    rows = _rows(schema, lines, bounds)
    merged = merged_in_batches(plan, [[_record(line) for line in batch] for batch in batches])
    # Other records are not the posted ones in another order: nothing can be said of an order then.
    moved = batches != first and sorted(lines) == sorted(others)
    differences = _differences(plan, _rows(schema, others, bounds), rows) if moved else []
    same = [row.after for row in rows] == merged
    return Played(schema, story_lanes(plan), rows, batches, same, moved, differences)


def _schema(text: str, bounds: CatalogBounds) -> TableSchema:
    if text.lstrip().startswith("{"):
        parsed: Any = parse_json(text.encode())
        return validate_table("playground", parsed, bounds.table)
    declared = declared_tables("playground", text, None, bounds)
    if len(declared) != 1:
        raise Invalid(f"the playground has one table, the statements make {len(declared)}: leave one of them")
    return declared[0].schema


def _batches(text: str) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    for line in map(str.strip, text.splitlines()):
        if line:
            batches[-1].append(line)
        elif batches[-1]:
            batches.append([])
    found = [batch for batch in batches if batch]
    count = sum(map(len, found))
    if not 1 <= count <= MOST_LINES:
        raise Invalid(f"the playground folds 1 to {MOST_LINES} records, one a line; these are {count}")
    return found


def _record(line: str) -> Any:
    return parse_json(line.encode())


def _rows(schema: TableSchema, lines: Sequence[str], bounds: CatalogBounds) -> list[SimulatedRow]:
    records = []
    for number, line in enumerate(lines):
        try:
            records.append(_record(line))
        except Invalid as error:
            message = f"record {number + 1} is no JSON: {error.message}"
            fault = Violation(f"/records/{number}", FaultCode.NOT_AN_OBJECT, message, 'write {"column": value, …}')
            raise Invalid(message, violations=[fault]) from error
    return simulate_merge(json.dumps({"schema": schema.to_json(), "records": records}).encode(), bounds.table)


def _differences(plan: MergePlan, posted: Sequence[SimulatedRow], moved: Sequence[SimulatedRow]) -> list[Difference]:
    after = {json.dumps(row.key): row.after for row in moved}
    found = []
    for row in posted:
        there = after[json.dumps(row.key)]
        for column in plan.schema.value_columns:
            values = [(one or {}).get(column.name) for one in (row.after, there)]
            if json.dumps(values[0]) != json.dumps(values[1]):
                rule = plan.rule_of[column.name]
                words, by_arrival = column_words(plan, column), depends_on_arrival(plan, rule)
                found.append(Difference(row.key, column.name, values[0], values[1], words, by_arrival))
    return found
