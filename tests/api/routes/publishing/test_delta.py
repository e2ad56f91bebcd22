"""``T/delta``: the version, how far it is behind, and lines that can be pasted."""

from __future__ import annotations

from typing import Any

import duckdb
import polars
import pytest
from fastapi.testclient import TestClient

from app.services.publishing.publications import Publisher
from tests.api.conftest import TABLES, new_table, parts_of
from tests.delta_readers import duckdb_extension
from tests.services.builders import merge_staged

TABLE = f"{TABLES}/it's"


class Published:
    """A table with a name that must be quoted, in a service whose worker is the test."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.parts = parts_of(client)
        options = {"delta.publish": "true", "merge-engine": "partial-update", "merge.max-staleness": "1 d"}
        created = client.post(TABLES, json=new_table("it's", options=options))
        self.id = created.json()["id"]

    def post(self, *records: dict[str, Any], merge: bool = True) -> None:
        assert self.client.post(f"{TABLE}/batches", json={"records": records}).status_code == 202
        if merge:
            merge_staged(self.parts.database, self.parts.warehouse, self.id)

    def publish(self) -> None:
        Publisher(self.parts.database, self.parts.warehouse).publish()

    def reported(self) -> Any:
        answer = self.client.get(f"{TABLE}/delta")
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def table(shop: TestClient) -> Published:
    return Published(shop)


def test_nothing_is_published_before_the_first_merge(table: Published) -> None:
    reported = table.reported()
    assert (reported["publishes"], reported["version"], reported["snapshotId"], reported["earliestVersion"]) == (
        True,
        None,
        None,
        None,
    )
    assert (reported["behindBatches"], reported["behindMillis"], reported["readBy"]) == (0, 0, None)
    assert reported["waiting"] == "nothing was merged yet"


def test_the_version_and_what_it_lacks_are_reported(table: Published) -> None:
    table.post({"id": 1, "note": "a"})
    assert "about to write version 0" in table.reported()["waiting"]
    table.publish()
    reported = table.reported()
    assert (reported["version"], reported["snapshotId"], reported["waiting"]) == (0, 1, None)
    assert (reported["behindBatches"], reported["behindRecords"], reported["behindMillis"]) == (0, 0, 0)
    table.post({"id": 1, "note": "b"}, {"id": 2})
    table.post({"id": 3}, merge=False)
    reported = table.reported()
    assert (reported["version"], reported["behindBatches"], reported["behindRecords"]) == (0, 2, 3)
    assert "POST …/compact" in reported["waiting"]


def test_a_table_that_does_not_publish_says_what_to_set(table: Published) -> None:
    table.client.post(TABLES, json=new_table("plain"))
    reported = table.client.get(f"{TABLES}/plain/delta").json()
    assert (reported["publishes"], reported["waiting"]) == (False, "nothing is published: set delta.publish = true")


def test_the_lines_can_be_pasted(table: Published) -> None:
    table.post({"id": 1, "note": "a"})
    table.publish()
    lines = table.reported()["readBy"]
    query = lines["duckdb"].removeprefix("INSTALL delta; LOAD delta; ")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.load_extension(duckdb_extension())  # there is no internet here: the wheel's own
        assert connection.sql(query).fetchall() == [(1, "a")]
    assert eval(lines["polars"], {"polars": polars}).rows() == [(1, "a")]  # noqa: S307  # our own line
    assert "table_name => 'it''s'" in lines["trino"]
    assert lines["spark"].startswith('spark.read.format("delta").load("file:///')
