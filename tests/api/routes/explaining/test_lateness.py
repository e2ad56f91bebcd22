"""``T/lateness`` over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.shared.deps import Parts
from app.services.upkeep.late_counting import count_late_records
from tests.api.conftest import TABLES, Create, Merge, fields_of
from tests.services.builders import in_process

TABLE = f"{TABLES}/wide"
FIELDS = fields_of(id="INT NOT NULL", day="DATE", note="STRING")


@pytest.fixture
def counted(app: FastAPI, create: Create, shop: TestClient, merge: Merge) -> TestClient:
    """A client of a catalog whose table ``wide`` was sent a record that was three days late."""
    create(fields=FIELDS, options={"sequence.field": "day"})
    parts: Parts = app.state.parts
    merged = merge({"id": 1, "day": "2026-03-04", "note": "a"}, {"id": 1, "day": "2026-03-01", "note": "b"})
    assert count_late_records(in_process(parts.database, parts.warehouse), [merged])
    return shop


def test_what_came_late_is_reported_by_lane_and_sender(counted: TestClient) -> None:
    reported = counted.get(f"{TABLE}/lateness").json()
    assert (reported["merges"], reported["counted"], reported["records"], reported["exact"]) == (1, 1, 2, True)
    [lane] = reported["lanes"]
    assert (lane["sequence"], lane["columns"], lane["measure"], lane["horizon"]) == (["day"], ["note"], "seconds", None)
    [sender] = lane["senders"]
    counts = [sender[name] for name in ("records", "late", "inMerge", "againstOlder", "changedNothing")]
    assert counts == [2, 1, 1, 0, 1]
    assert (sender["largest"], [step["upTo"] for step in sender["steps"] if step["records"]]) == (
        259_200.0,
        [604_800.0],
    )
    assert sender["steps"][-1]["upTo"] is None


def test_since_leaves_out_what_was_merged_before(counted: TestClient) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    reported = counted.get(f"{TABLE}/lateness", params={"since": later}).json()
    assert (reported["since"], reported["merges"], reported["lanes"][0]["senders"]) == (None, 0, [])
