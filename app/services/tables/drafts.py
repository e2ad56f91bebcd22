"""Drafts of tables: their faults with places and repairs, and the effect of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from app.core.errors import FaultCode, Invalid, TooLarge, Violation
from app.core.plan.explaining.table_warnings import table_warnings
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS, CatalogBounds
from app.services.bodies.json_bodies import parse_json
from app.services.bodies.json_places import places_in
from app.services.tables.ddl import declared_tables
from app.services.tables.repairs import Repair, repairs_of
from app.services.tables.rules import TableRules, table_rules
from app.services.tables.tables import validate_table

MOST_READ_AGAIN = 40_000  # characters, of all texts that are tried as repairs of one
MOST_MENDED = 10  # faults of one


class DraftKind(StrEnum):
    """The language of a draft."""

    SQL = "sql"  # CREATE TABLE statements, Flink's or Spark's
    JSON = "json"  # Paimon's schema


@dataclass(frozen=True)
class Draft:
    """A text that declares tables of ``database``; JSON declares one, which is called ``name``."""

    kind: DraftKind
    database: str
    text: str
    name: str = ""


@dataclass(frozen=True)
class DraftTable:
    """A table that a draft declares, its rules in words and its warnings."""

    name: str
    schema: TableSchema
    rules: TableRules
    warnings: Sequence[Violation]


@dataclass(frozen=True)
class DraftFault:
    """A fault in the ``line`` (from 1; None if it has no place), and a repaired text, if one is known. ``option`` is
    the key of the option at fault.
    """

    message: str
    fix: str
    line: int | None
    repair: Repair | None = None
    option: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The tables of a draft without faults, or its faults."""

    tables: Sequence[DraftTable] = ()
    faults: Sequence[DraftFault] = ()


def judged(draft: Draft, bounds: CatalogBounds = DEFAULT_BOUNDS) -> Verdict:
    """Return the tables that ``draft`` declares, or its faults. Read only the text, not the catalog."""
    try:
        return Verdict(tables=_declared(draft, bounds))
    except (Invalid, TooLarge) as invalid:
        faults = _placed(draft, invalid)
    places = (fault.about.offset for fault in faults)
    lines = [None if place is None else draft.text.count("\n", 0, place) + 1 for place in places]
    mended = [*_mended(draft, faults, bounds), *[None] * len(faults)]
    return Verdict(
        faults=[
            DraftFault(fault.about.short_message or fault.message, fault.fix, line, repair, fault.about.option)
            for fault, line, repair in zip(faults, lines, mended, strict=False)
        ]
    )


def body_of(draft: Draft) -> Mapping[str, Any]:
    """Return the schema of a draft in JSON, which is the schema itself or a request to create a table. Raise
    ``Invalid``.
    """
    parsed = parse_json(draft.text.encode("utf-8", "surrogatepass"))
    if isinstance(parsed, dict) and isinstance(parsed.get("schema"), dict):
        parsed = parsed["schema"]
    if not isinstance(parsed, dict):
        raise Invalid('this is no schema; write {"fields": [{"name": …, "type": …}], "primaryKeys": […]}')
    return parsed


def _declared(draft: Draft, bounds: CatalogBounds) -> list[DraftTable]:
    """Return the declared tables. Raise ``Invalid`` with every fault."""
    if draft.kind is DraftKind.JSON:
        schema = validate_table(draft.name, body_of(draft), bounds.table)
        return [DraftTable(draft.name, schema, table_rules(schema), table_warnings(schema))]
    return [
        DraftTable(
            table.name,
            table.schema,
            table_rules(table.schema),
            [*table.statement.warnings, *table_warnings(table.schema)],
        )
        for table in declared_tables(draft.database, draft.text, None, bounds)
    ]


def _placed(draft: Draft, invalid: Invalid | TooLarge) -> list[Violation]:
    """Return the faults with their places in the text, if they have one."""
    faults = list(invalid.violations) or [Violation("", FaultCode.JSON_INVALID, invalid.message)]
    if draft.kind is not DraftKind.JSON:
        return faults
    places = places_in(draft.text, (fault.pointer for fault in faults))
    return [replace(fault, about=replace(fault.about, offset=places.nearest(fault.pointer))) for fault in faults]


def _mended(draft: Draft, faults: Sequence[Violation], bounds: CatalogBounds) -> Iterator[Repair | None]:
    """Yield for each of the first faults the first repair that leaves fewer faults; for a long text few are tried."""
    tries = MOST_READ_AGAIN // max(1, len(draft.text))
    for fault in faults[:MOST_MENDED]:
        mends = None
        for repair in islice(repairs_of(draft.text, fault), tries):
            tries -= 1
            if _count(draft, repair, bounds) < len(faults):
                mends = repair
                break
        yield mends


def _count(draft: Draft, repair: Repair, bounds: CatalogBounds) -> int:
    try:
        _declared(Draft(draft.kind, draft.database, repair.text, draft.name), bounds)
    except (Invalid, TooLarge) as invalid:
        return max(1, len(invalid.violations))
    return 0
