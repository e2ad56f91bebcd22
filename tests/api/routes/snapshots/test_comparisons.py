"""``T/merges/{id}/changes`` and ``T/snapshots/{version}/changes`` over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.services.explaining.comparisons import MOST_SAMPLE
from tests.api.conftest import TABLES, Create, Merge

TABLE = f"{TABLES}/wide"


@pytest.fixture
def merged(create: Create, merge: Merge) -> str:
    """The id of the second merge of the table ``wide``: it changed row 1, added row 3, left row 2 as it was."""
    create(options={"num-sorted-run.compaction-trigger": "99"})
    merge({"id": 1, "note": "a"}, {"id": 2})
    return merge({"id": 1, "note": "b"}, {"id": 2}, {"id": 3}).id


def test_a_merge_says_what_it_did_and_snapshots_are_compared_by_number_name_and_tag(
    shop: TestClient, merged: str
) -> None:
    answer = shop.get(f"{TABLE}/merges/{merged}/changes")
    assert answer.status_code == 200, answer.text
    reported = answer.json()
    counts = {name: reported[name] for name in ("since", "snapshotId", "exact", "share", "keys")}
    assert counts == {"since": 1, "snapshotId": 2, "exact": True, "share": 1.0, "keys": 3}
    assert [reported[name] for name in ("added", "changed", "removed", "unchanged")] == [1, 1, 0, 1]
    assert [column for column in reported["columns"] if column["changed"]] == [{"column": "note", "changed": 1}]
    added, changed = reported["sample"]
    assert (added["became"], added["key"], added["before"], added["columns"]) == ("added", {"id": 3}, None, [])
    assert (changed["became"], changed["before"]["note"], changed["after"]["note"]) == ("changed", "a", "b")
    assert changed["columns"] == ["note"]

    assert shop.post(f"{TABLE}/tags", json={"tagName": "v1", "snapshotId": 1}).status_code == 200
    reported = shop.get(f"{TABLE}/merges/{merged}/changes").json()
    assert shop.get(f"{TABLE}/snapshots/LATEST/changes").json() == reported
    assert shop.get(f"{TABLE}/snapshots/2/changes", params={"since": "v1"}).json() == reported
    first = shop.get(f"{TABLE}/snapshots/v1/changes").json()
    assert (first["since"], first["snapshotId"], first["added"]) == (None, 1, 2)
    back = shop.get(f"{TABLE}/snapshots/EARLIEST/changes", params={"since": "LATEST", "columns": "note"}).json()
    assert [(sample["became"], sample["before"], sample["after"]) for sample in back["sample"]] == [
        ("changed", {"id": 1, "note": "b"}, {"id": 1, "note": "a"}),
        ("removed", {"id": 3, "note": None}, None),
    ]
    missing = shop.get(f"{TABLE}/snapshots/2/changes", params={"since": "nosuch"})
    assert (missing.status_code, missing.json()["errorCode"]) == (404, "snapshot_not_found")

    path = f"{TABLE}/merges/{merged}/changes"
    assert shop.get(path, headers={"Prefer": "integers=text"}).headers["preference-applied"] == "integers=text"
    assert "preference-applied" not in shop.get(path).headers


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"sample": MOST_SAMPLE + 1}, "/sample", "out_of_range"),
    ({"sample": -1}, "/sample", "out_of_range"),
    ({"columns": "id,nosuch"}, "/columns", "unknown_column"),
    ({"integers": "roman"}, "", "enum"),
]


def test_what_cannot_be_asked_for_is_refused_with_the_fix(shop: TestClient, merged: str) -> None:
    for parameters, pointer, code in REFUSED:
        for path in (f"{TABLE}/merges/{merged}/changes", f"{TABLE}/snapshots/2/changes"):
            answer = shop.get(path, params=parameters)
            assert answer.status_code == 400, parameters
            assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [(pointer, code)]
