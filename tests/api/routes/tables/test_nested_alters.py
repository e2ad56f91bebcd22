"""Tables whose nested columns were altered between their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.kernel.tasks import Result
from app.services.shared.executor import MergeSite
from tests.api.conftest import TABLES, Create, fields_of
from tests.services.builders import compact, merge_staged
from tests.services.executor import PythonExecutor

WIDE = f"{TABLES}/wide"
TYPES = {
    "id": "BIGINT NOT NULL",
    "seq": "INT",
    "r": "ROW<a INT, b STRING>",
    "items": "ARRAY<ROW<sku INT, n INT, note STRING>>",
    "m": "MAP<STRING, ROW<v INT, t INT>>",
}
FIELDS = fields_of(**TYPES)
BY_KEY = {
    "merge-engine": "aggregation",
    "fields.items.aggregate-function": "nested_update",
    "fields.items.nested-key": "sku",
    "fields.m.aggregate-function": "merge_map_with_keytime",
    "fields.m.ts-field": "t",
    "fields.m.ignore-retract": "true",
}
ENGINES = {
    "deduplicate": {"sequence.field": "seq"},
    "partial-update": {"merge-engine": "partial-update", "sequence.field": "seq"},
    "values": BY_KEY | {"fields.items.ignore-retract": "true"},
    "logs": BY_KEY | {"sequence.field": "seq"},
    "replayed": {
        "merge-engine": "partial-update",
        "fields.seq.sequence-group": "items,r",
        "partial-update.remove-record-on-sequence-group": "seq",
        "fields.items.aggregate-function": "nested_update",
        "fields.items.nested-key": "sku",
    },
}
OLDER = {
    "id": 1,
    "seq": 5,
    "r": {"a": 1, "b": "x"},
    "items": [{"sku": 1, "n": 1, "note": "x"}],
    "m": {"p": {"v": 1, "t": 9}},
}
ALTERED = {"r": {"z": 1, "b": None, "c": None}, "items": [{"qty": 1, "code": 1}], "m": {"p": {"v": 1, "at": 9}}}
NEWER = {
    "r": {"z": 3, "b": True, "c": 0.5},
    "items": [{"code": 2**40, "qty": 2}],
    "m": {"p": {"v": 2, "at": 8}, "q": None},
}
CHANGES = [
    ("renameColumn", ["r", "a"], {"newName": "z"}),
    ("dropColumn", ["r", "b"], {}),
    ("addColumn", ["r", "b"], {"dataType": "BOOLEAN"}),
    ("addColumn", ["r", "c"], {"dataType": "DOUBLE"}),
    ("renameColumn", ["items", "element", "sku"], {"newName": "code"}),
    ("updateColumnType", ["items", "element", "code"], {"newDataType": "BIGINT", "keepNullability": True}),
    ("renameColumn", ["items", "element", "n"], {"newName": "qty"}),
    ("dropColumn", ["items", "element", "note"], {}),
    ("renameColumn", ["m", "value", "t"], {"newName": "at"}),
]


class Table:
    """The table ``wide``: posts and merges, compacts, alters, reads."""

    def __init__(self, client: TestClient, app: FastAPI, table_id: str) -> None:
        self.client, self.id = client, table_id
        self.parts: Parts = app.state.parts

    def stage(self, **record: Any) -> None:
        answer = self.client.post(f"{WIDE}/batches", json={"records": [record]})
        assert answer.status_code == 202, answer.text

    def merge(self, **record: Any) -> None:
        self.stage(**record)
        self.merge_staged()

    def merge_staged(self) -> None:
        merge_staged(self.parts.database, self.parts.warehouse, self.id)

    def compact(self) -> None:
        with self.parts.database.reading() as repository:
            table = repository.tables.get("shop", "wide")
        compact(MergeSite(self.parts.database, self.parts.warehouse, PythonExecutor(), 600), table)

    def alter(self) -> Any:
        changes = [{"action": action, "fieldNames": path, **members} for action, path, members in CHANGES]
        return self.client.post(WIDE, json={"changes": changes})

    def rows(self) -> list[Any]:
        """The row as merged, and as of the latest record."""
        asked = [self.client.get(f"{WIDE}/rows", params={"key": 1, "consistency": c}) for c in ("merged", "latest")]
        return [answer.json() if answer.status_code == 200 else answer.status_code for answer in asked]


@pytest.fixture
def make(app: FastAPI, create: Create, shop: TestClient) -> Callable[..., Table]:
    """Makes the table with the options of an engine."""
    return lambda engine, **more: Table(shop, app, create(fields=FIELDS, options=ENGINES[engine] | more)["id"])


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_old_rows_are_read_and_folded_under_the_new_fields(
    make: Callable[..., Table], engine: str, staged: bool
) -> None:
    table = make(engine)
    table.merge(**OLDER)
    table.stage(id=1, seq=5)
    if not staged:
        table.merge_staged()
    assert table.alter().status_code == 200
    latest = {"id": 1, "seq": 5, **ALTERED}
    shown = latest | ({"r": None, "items": None, "m": None} if engine == "deduplicate" else {})
    items = [{"code": 1, "qty": 1}]
    shown = shown if engine == "deduplicate" else shown | {"items": items}
    if engine == "replayed":  # a group's columns take the nulls of its latest record
        shown |= {"r": None}
    if staged:
        assert table.rows()[1] == shown
        table.merge_staged()
    assert table.rows() == [shown, shown]
    table.stage(id=1, seq=4, items=[{"code": 1, "qty": 9}, {"code": 3, "qty": 3}])
    late = table.rows()[1]
    table.merge(id=1, seq=6, **NEWER)
    after = table.rows()[0]
    assert after["r"] == NEWER["r"]
    kept = [] if engine in ("partial-update", "deduplicate") else [1, 3]
    assert sorted(item["code"] for item in after["items"]) == [*kept, 2**40]
    if engine in ("logs", "replayed"):  # the late record comes before the one that was there
        assert all({"code": 1, "qty": 1} in row["items"] for row in (late, after))
    before = table.rows()
    table.compact()
    assert table.rows() == before


class Altering(PythonExecutor):
    """Alters the table while it compacts."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def compact(self, *arguments: Any, **named: Any) -> list[Result]:
        assert self.table.alter().status_code == 200
        return super().compact(*arguments, **named)


def test_changes_of_a_compaction_that_began_before_are_answered_in_the_new_fields(make: Callable[..., Table]) -> None:
    table = make("values", **{"changelog-producer": "full-compaction"})
    table.merge(**OLDER)
    table.merge(id=1, seq=6)
    with table.parts.database.reading() as repository:
        shown = repository.tables.get("shop", "wide")
    compact(MergeSite(table.parts.database, table.parts.warehouse, Altering(table), 600), shown)
    (line,) = table.client.get(f"{WIDE}/changelog").text.splitlines()
    change = json.loads(line)
    assert {name: change[name] for name in ALTERED} == ALTERED


HOSTILE_PATHS: list[tuple[list[str], str]] = [
    ([], "/changes/0/fieldNames"),
    (["r", ""], "/changes/0/fieldNames"),
    (["zz", "a"], "/changes/0/fieldNames/0"),
    (["r", "zz"], "/changes/0/fieldNames/1"),
    (["seq", "a"], "/changes/0/fieldNames/1"),
    (["r", "a", "b"], "/changes/0/fieldNames/2"),
    (["m", "key"], "/changes/0/fieldNames/1"),
    (["items", "sku"], "/changes/0/fieldNames/1"),
    (["id", "x"], "/changes/0/fieldNames/1"),
    (["r", "a\u0000"], "/changes/0/fieldNames/1"),
    (["r"] + ["a"] * 1000, "/changes/0/fieldNames/2"),
]


def test_hostile_paths_are_refused_with_a_pointer_and_a_fix(make: Callable[..., Table]) -> None:
    table = make("values")
    for path, pointer in HOSTILE_PATHS:
        members = {"fieldNames": path, "newName": "y", "newDataType": "BIGINT", "newNullability": True}
        for action in ("dropColumn", "renameColumn", "updateColumnType", "updateColumnNullability"):
            answer = table.client.post(WIDE, json={"changes": [{"action": action, **members}]})
            assert 400 <= answer.status_code < 500, (path, action)
            faults = answer.json()["errors"]
            assert [fault["pointer"] for fault in faults][-1] == pointer, (path, action)
            assert all(fault["fix"] and fault["detail"] for fault in faults)
