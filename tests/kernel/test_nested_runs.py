"""Runs whose nested columns were altered afterwards, combined by tasks as lookups combine them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.core.alter.changes import alter_schema
from app.core.plan.merging.evolution import same_fold
from app.core.plan.merging.fold import shown_row
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.schema import TableSchema
from tests.api.routes.tables.test_nested_alters import CHANGES, ENGINES, FIELDS
from tests.oracle import Change
from tests.site import Row, Site


def schema(options: Mapping[str, str]) -> TableSchema:
    return TableSchema.from_json({"fields": FIELDS, "primaryKeys": ["id"], "options": dict(options)})


def altered(old: TableSchema) -> TableSchema:
    changes = [{"action": action, "fieldNames": path, **members} for action, path, members in CHANGES]
    return alter_schema(old, changes, highest_id=old.highest_field_id, has_rows=True, deepest_type=9)


def record(number: int, seq: int, kind: str = "+I", **values: Any) -> Change:
    return Change(kind, {"id": number, "seq": seq, "r": None, "items": None, "m": None, **values})


OLD = [
    record(1, 5, r={"a": 1, "b": "x"}, items=[{"sku": 1, "n": 1, "note": "x"}, {"sku": 2, "n": 2, "note": None}]),
    record(1, 3, r={"a": None, "b": "y"}, items=[{"sku": 2, "n": 9, "note": "z"}], m=[("p", {"v": 1, "t": 9})]),
    record(2, 5, r={"a": 2, "b": None}, items=[None, {"sku": None, "n": 1, "note": "x"}], m=[("p", None)]),
    record(3, 5, r=None, items=[], m=[]),
]
NEW = [
    record(1, 4, r={"z": 9, "b": False, "c": 0.5}, items=[{"qty": 7, "code": 2}, {"qty": 8, "code": 2**40}]),
    record(1, 6, m=[("p", {"v": 2, "at": 10}), ("q", {"v": None, "at": 1})]),
    record(3, 4, r={"z": 9, "b": True, "c": None}, items=[{"qty": 7, "code": 2**40}]),
]


def stored(site: Site) -> dict[int, Row | None]:
    """The visible columns of the one run."""
    plan, states = site.plan, site.states(site.runs[0])
    return {s["id"]: in_any_order(shown_row(plan, s)) if plan.row.is_live(s) else None for s in states}


def in_any_order(row: Row | None) -> Row | None:
    """The row with its map as a dict: the order of entries means nothing."""
    return row if row is None or row["m"] is None else {**row, "m": dict(row["m"])}


@pytest.mark.parametrize("engine", ["deduplicate", "values", "logs", "replayed"])  # a few merges each
def test_runs_of_older_fields_are_combined_with_those_of_newer_ones(engine: str, tmp_path: Path) -> None:
    old = schema(ENGINES[engine])
    new = altered(old)
    assert same_fold(old, new)
    site = Site(tmp_path, compile_plan(old))
    site.merge([OLD[:1]])
    site.merge([OLD[1:]])
    site.plan = compile_plan(new)
    read = site.rows()
    assert (read[(2,)] or {})["r"] == {"z": 2, "b": None, "c": None}
    site.merge([NEW])
    expected = {key: in_any_order(row) for (key,), row in site.rows().items()}
    site.compact(0, 3)
    assert stored(site) == expected
    assert {key: in_any_order(row) for (key,), row in site.rows().items()} == expected
