"""Random lives of a database's rows, as PostgreSQL's connector tells them, in random order and twice over: a table with
an order from the event shows what the database shows.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.services.shared.unavailable import UNAVAILABLE
from tests.api.conftest import TABLES, Create, Merge, fields_of

T = f"{TABLES}/orders"
COLUMNS = {"id": "BIGINT", "status": "STRING", "n": "INT", "doc": "STRING", "lsn": "BIGINT"}
ORDERED = {"fields.lsn.from-event": "source.lsn", "events.source": "shop.orders"}
UNCHANGED = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}
GROUPS = {"fields.lsn.sequence-group": "status,n,doc", "partial-update.remove-record-on-sequence-group": "lsn"}
ENGINES = {
    "deduplicate": {"sequence.field": "lsn"},
    "partial-update": UNCHANGED | {"sequence.field": "lsn", "partial-update.remove-record-on-delete": "true"},
    "sequence group": UNCHANGED | GROUPS,
}
Row = dict[str, Any]


class Database:
    """A table of PostgreSQL, and the events of its changes; ``whole`` is REPLICA IDENTITY FULL."""

    def __init__(self, random: random.Random, whole: bool) -> None:
        self.random, self.whole = random, whole
        self.rows: dict[int, Row] = {}
        self.events: list[Row] = []
        self.lsn = 1000

    def change(self) -> None:
        """One change of one row."""
        self.lsn += self.random.randint(1, 100)
        key = self.random.randrange(5)
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = self._new(key)
            self._tell(self.random.choice("cr"), None, self.rows[key])
            return
        kind = self.random.random()
        if kind < 0.25:
            self._tell("d", self.rows.pop(key), None)
        elif kind < 0.35 and (other := self.random.randrange(5)) not in self.rows:
            before = self.rows.pop(key)
            self.rows[other] = before | {"id": other}
            # PostgreSQL's connector makes a delete and an insert of it, both at one position.
            self._tell("d", before, None)
            self._tell("c", None, self.rows[other])
        else:
            after = row | {"status": self.random.choice("abc"), "n": self.random.choice([None, 1, 2])}
            changed = self.random.random() < 0.5
            after |= {"doc": f"doc {self.lsn}"} if changed else {}
            self.rows[key] = after
            self._tell(
                "u", row if self.whole else None, after if changed or self.whole else after | {"doc": UNAVAILABLE}
            )

    def _new(self, key: int) -> Row:
        return {"id": key, "status": "new", "n": self.random.choice([None, 0]), "doc": f"doc {self.lsn}"}

    def _tell(self, op: str, before: Row | None, after: Row | None) -> None:
        if before is not None and not self.whole:
            before = {"id": before["id"], "status": None, "n": None, "doc": None}
        source = {"db": "src", "schema": "shop", "table": "orders", "lsn": self.lsn, "sequence": f'[null,"{self.lsn}"]'}
        self.events.append({"op": op, "before": before, "after": after, "source": source, "ts_ms": self.lsn})


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("engine", ENGINES)
def test_late_and_repeated_events_come_to_the_rows_of_the_database(
    create: Create, shop: TestClient, merge: Merge, engine: str, seed: int
) -> None:
    chosen = random.Random(seed)
    options = ORDERED | ENGINES[engine]
    fields = fields_of(**COLUMNS)
    create("orders", fields=fields, primaryKeys=["id"], options=options)
    database = Database(chosen, whole=engine == "deduplicate" or seed % 2 == 0)
    for _ in range(60):
        database.change()
    events = database.events * 2
    chosen.shuffle(events)
    while events:
        size = chosen.randint(1, 20)
        body, events = events[:size], events[size:]
        answer = shop.post(f"{T}/batches?format=debezium-json", json=body)
        assert answer.status_code == 202, answer.text
        if chosen.random() < 0.3:
            merge(name="orders")
    merge(name="orders")
    found = [json.loads(line) for line in shop.get(f"{T}/rows:scan").text.splitlines()]
    shown = {row["id"]: {name: value for name, value in row.items() if name != "lsn"} for row in found}
    assert shown == database.rows
