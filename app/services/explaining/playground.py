"""A playground: records folded under a schema in one order or another, and in several batches; nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from app.core.errors import FaultCode, Invalid, TooLarge, Violation
from app.core.plan.explaining.explanations import column_words, depends_on_arrival
from app.core.plan.explaining.story_lanes import StoryLane, story_lanes
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds
from app.services.bodies.json_bodies import parse_json
from app.services.explaining.simulations import SimulatedRow, merged_in_batches, simulate_on_nothing
from app.services.tables.ddl import declared_tables
from app.services.tables.tables import validate_table

MOST_LINES: Final = 200
MOST_VALUES: Final = 20_000  # records times columns: each is folded three times, and shown with its reason


@dataclass(frozen=True)
class Difference:
    """A column with another value in another order, and its rule; ``arrival``: the order of arrival decides."""

    key: Mapping[str, Any]
    column: str
    posted: Any
    moved: Any
    rule: str
    by_arrival: bool


@dataclass(frozen=True)
class Played:
    """The rows of the folded records. ``in_batches``: whether folding each batch separately gives the same rows;
    ``differences`` are those from the rows in the posted order.
    """

    schema: TableSchema
    lanes: Sequence[StoryLane]
    rows: Sequence[SimulatedRow]
    batches: Sequence[Sequence[str]]
    in_batches: bool
    moved: bool
    differences: Sequence[Difference]


def play(schema_text: str, records: str, posted: str, bounds: CatalogBounds = DEFAULT_BOUNDS) -> Played:
    """Fold ``records``: JSON objects, one a line, an empty line ends a batch. ``posted`` are the same in another order.

    Raise ``Invalid`` for a schema or records that a table could not have, ``TooLarge``.
    """
    schema = _schema(schema_text, bounds)
    plan = compile_plan(schema)
    batches, first = _batches(records), _batches(posted)
    lines = [line for batch in batches for line in batch]
    others = [line for batch in first for line in batch]
    _check_values(len(lines), len(schema.columns))
    parsed = _records(lines)
    rows, rest = simulate_on_nothing(plan, parsed), iter(parsed)
    merged = merged_in_batches(plan, [[*islice(rest, len(batch))] for batch in batches])
    # If these are not the posted records in another order, the orders cannot be compared.
    moved = batches != first and sorted(lines) == sorted(others)
    differences = _differences(plan, simulate_on_nothing(plan, _records(others)), rows) if moved else []
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
    for line in map(str.strip, text.split("\n")):  # texts in JSON may hold all other ends of lines
        if line:
            batches[-1].append(line)
        elif batches[-1]:
            batches.append([])
    filled = [batch for batch in batches if batch]
    count = sum(map(len, filled))
    if not 1 <= count <= MOST_LINES:
        raise Invalid(f"the playground folds 1 to {MOST_LINES} records, one a line; these are {count}")
    return filled


def _check_values(records: int, columns: int) -> None:
    """Raise ``TooLarge`` for more values than a page can show."""
    most = MOST_VALUES // columns
    if records > most:
        fix = "play fewer of them, or leave out columns"
        message = f"the playground folds at most {most} records of a table of {columns} columns, these are {records}"
        raise TooLarge(f"{message}; {fix}", violations=[Violation("/records", FaultCode.TOO_LARGE, message, fix)])


def _records(lines: Sequence[str]) -> list[Any]:
    records = []
    for number, line in enumerate(lines):
        try:
            records.append(parse_json(line.encode()))
        except Invalid as error:
            message = f"record {number + 1} is no JSON: {error.message}"
            fault = Violation(f"/records/{number}", FaultCode.NOT_AN_OBJECT, message, 'write {"column": value, …}')
            raise Invalid(message, violations=[fault]) from error
    return records


def _differences(plan: MergePlan, posted: Sequence[SimulatedRow], moved: Sequence[SimulatedRow]) -> list[Difference]:
    after = {json.dumps(row.key): row.after for row in moved}
    differences = []
    for row in posted:
        moved_row = after[json.dumps(row.key)]
        for column in plan.schema.value_columns:
            values = [(shown or {}).get(column.name) for shown in (row.after, moved_row)]
            if json.dumps(values[0]) != json.dumps(values[1]):
                rule = plan.rule_of[column.name]
                words, by_arrival = column_words(plan, column), depends_on_arrival(plan, rule)
                differences.append(Difference(row.key, column.name, values[0], values[1], words, by_arrival))
    return differences
