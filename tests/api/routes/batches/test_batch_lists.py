"""A table's batches as they are listed: in order, in pages, by state."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import Merge
from tests.api.routes.batches.test_batches import BATCHES, post


@pytest.mark.parametrize("order", ["newest", "oldest", None])
def test_pages_hold_every_batch_once_in_order(wide: TestClient, order: str | None) -> None:
    posted = [post(wide, {"id": n}).json()["id"] for n in range(7)]
    seen: list[str] = []
    params: dict[str, Any] = {"maxResults": 3} | ({"order": order} if order else {})
    for size in (3, 3, 1):
        page = wide.get(BATCHES, params=params).json()
        assert len(page["batches"]) == size
        seen += [batch["id"] for batch in page["batches"]]
        params["pageToken"] = page["nextPageToken"]
    assert page["nextPageToken"] is None
    assert seen == (posted if order == "oldest" else posted[::-1])


def test_batches_are_listed_by_state(wide: TestClient, merge: Merge) -> None:
    merged, gone = (post(wide, {"id": 1}).json()["id"] for _ in range(2))
    wide.delete(f"{BATCHES}/{gone}")
    merge()
    staged = post(wide, {"id": 1}).json()["id"]
    listed = {
        state: [batch["id"] for batch in wide.get(BATCHES, params={"state": state}).json()["batches"]]
        for state in ("staged", "merged", "deleted", "poisoned")
    }
    assert listed == {"staged": [staged], "merged": [merged], "deleted": [gone], "poisoned": []}
    assert wide.get(BATCHES, params={"state": "lost"}).json()["errors"][0]["code"] == "enum"
