"""Rows whose table was altered between their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import TABLES, Create, Merge, fields_of

WIDE = f"{TABLES}/wide"
FIELDS = fields_of(id="BIGINT NOT NULL", seq="INT", n="INT", m="INT")
Post = Callable[..., object]


@pytest.fixture
def post(merge: Merge) -> Post:
    """Posts one record of the row 1 and merges it."""
    return lambda kind="+I", **values: merge({"_kind": kind, "id": 1, **values})


def alter(client: TestClient, **change: Any) -> None:
    answer = client.post(WIDE, json={"changes": [change]})
    assert answer.status_code == 200, answer.text


def widen(client: TestClient, column: str) -> None:
    alter(client, action="updateColumnType", fieldNames=[column], newDataType="BIGINT", keepNullability=True)


def test_a_deleted_row_stays_deleted_once_deletes_are_ignored(shop: TestClient, create: Create, post: Post) -> None:
    create(fields=FIELDS, options={"sequence.field": "seq"})
    post(seq=5, n=1)
    post("-D", seq=9)
    alter(shop, action="setOption", key="ignore-delete", value="true")
    shop.post(f"{WIDE}/compact")
    post(seq=7, n=2)
    assert shop.get(f"{WIDE}/rows?key=1").status_code == 404
    widen(shop, "n")
    post(seq=8, n=2)
    assert shop.get(f"{WIDE}/rows?key=1").status_code == 404
    post(seq=10, n=3)
    post("-D", seq=11)
    assert shop.get(f"{WIDE}/rows?key=1").json()["n"] == 3
    assert "removals" not in shop.get(WIDE).text
