"""Snapshots, tags, rollbacks and partitions by Paimon's client."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import requests
from conftest import Orders, orders
from pypaimon import Schema
from pypaimon.catalog.catalog_exception import (
    IllegalArgumentError,
    TableNotExistException,
    TagAlreadyExistException,
    TagNotExistException,
)
from pypaimon.catalog.rest.rest_catalog import RESTCatalog
from pypaimon.table.instant import Instant


@pytest.fixture
def written(table: Orders) -> Orders:
    """A table of two snapshots."""
    table.post({"id": 1, "name": "a"})
    table.post({"id": 1, "name": "b"}, {"id": 2, "name": "c"})
    return table


def _row(table: Orders, key: int) -> Any:
    return requests.get(f"{table.url}/rows", params={"key": key}, timeout=60).json()


def test_a_table_has_no_snapshot_before_its_first_merge(catalog: RESTCatalog, table: Orders) -> None:
    assert catalog.load_snapshot(table.name) is None


def test_the_snapshot_that_is_loaded_is_the_newest(catalog: RESTCatalog, written: Orders) -> None:
    loaded = catalog.load_snapshot(written.name)
    listed = requests.get(f"{written.url}/snapshots", timeout=60).json()["snapshots"]
    assert [loaded.snapshot.id, loaded.snapshot.commit_kind] == [listed[0]["id"], "APPEND"]
    assert loaded.record_count == loaded.snapshot.total_record_count == 3
    assert (loaded.file_count, loaded.file_size_in_bytes > 0) == (2, True)


def test_tags_are_created_shown_listed_and_deleted(catalog: RESTCatalog, written: Orders) -> None:
    newest = catalog.load_snapshot(written.name).snapshot.id
    catalog.create_tag(written.name, "v1", newest - 1)
    catalog.create_tag(written.name, "v2", time_retained="2 h")
    catalog.create_tag(written.name, "w", time_retained="1 d")
    assert catalog.get_tag(written.name, "v1").snapshot.id == newest - 1
    reported = catalog.get_tag(written.name, "v2")
    assert (reported.tag_name, reported.snapshot.id, reported.tag_time_retained) == ("v2", newest, "PT2H")
    page = catalog.list_tags_paged(written.name, max_results=1, tag_name_prefix="v")
    rest = catalog.list_tags_paged(written.name, 1, page.next_page_token, "v")
    assert (page.elements, rest.elements, rest.next_page_token) == (["v1"], ["v2"], None)
    catalog.delete_tag(written.name, "v1")
    assert catalog.list_tags_paged(written.name).elements == ["v2", "w"]


def test_what_is_wrong_with_a_tag_is_reported(catalog: RESTCatalog, written: Orders) -> None:
    catalog.create_tag(written.name, "v1")
    with pytest.raises(TagAlreadyExistException):
        catalog.create_tag(written.name, "v1")
    catalog.create_tag(written.name, "v1", ignore_if_exists=True)
    for asked in (catalog.get_tag, catalog.delete_tag):
        with pytest.raises(TagNotExistException):
            asked(written.name, "nope")
        with pytest.raises(TableNotExistException):
            asked(f"{written.database}.nope", "v1")
    with pytest.raises(ValueError, match="999"):
        catalog.create_tag(written.name, "v9", 999)
    with pytest.raises(IllegalArgumentError, match="soon"):
        catalog.create_tag(written.name, "v9", time_retained="soon")
    for asked in (catalog.create_tag, catalog.get_tag, catalog.delete_tag):
        with pytest.raises(TableNotExistException):
            asked(f"{written.database}.nope", "v1")
    with pytest.raises(TableNotExistException):
        catalog.list_tags_paged(f"{written.database}.nope")


def test_a_tag_of_a_table_without_a_snapshot_is_refused(catalog: RESTCatalog, table: Orders) -> None:
    with pytest.raises(ValueError, match="doesn't exist"):
        catalog.create_tag(table.name, "v1")


def test_a_table_goes_back_to_a_snapshot_and_to_a_tag(catalog: RESTCatalog, written: Orders) -> None:
    first = catalog.load_snapshot(written.name).snapshot.id - 1
    catalog.create_tag(written.name, "now")
    catalog.rollback_to(written.name, Instant.snapshot(first))
    assert _row(written, 1)["name"] == "a"
    catalog.rollback_to(written.name, Instant.tag("now"), catalog.load_snapshot(written.name).snapshot.id)
    assert _row(written, 1)["name"] == "b"
    catalog.get_table(written.name).rollback_to("now")


def test_what_is_wrong_with_a_rollback_is_reported(catalog: RESTCatalog, written: Orders) -> None:
    with pytest.raises(ValueError, match="snapshot '999' doesn't exist"):
        catalog.rollback_to(written.name, Instant.snapshot(999))
    with pytest.raises(ValueError, match="tag 'nope' doesn't exist"):
        catalog.rollback_to(written.name, Instant.tag("nope"))
    with pytest.raises(TableNotExistException):
        catalog.rollback_to(f"{written.database}.nope", Instant.snapshot(1))
    newest = catalog.load_snapshot(written.name).snapshot.id
    with pytest.raises(Exception, match="current snapshot"):
        catalog.rollback_to(written.name, Instant.snapshot(newest - 1), newest - 1)
    assert _row(written, 1)["name"] == "b"


def test_partitions_are_listed_by_page_and_by_pattern(catalog: RESTCatalog, database: str) -> None:
    schema = Schema.from_pyarrow_schema(
        pa.schema([("day", "string"), ("id", "int64"), ("name", "string")]),
        partition_keys=["day"],
        primary_keys=["day", "id"],
        options={"bucket": "1"},
    )
    catalog.create_table(f"{database}.parts", schema, False)
    table = Orders(catalog, database, "parts")
    assert catalog.list_partitions_paged(table.name).elements == []
    table.post(*({"day": f"2026-01-0{day}", "id": 1, "name": "a"} for day in (1, 2, 3)))
    page = catalog.list_partitions_paged(table.name, max_results=2)
    rest = catalog.list_partitions_paged(table.name, 2, page.next_page_token)
    found = page.elements + rest.elements
    assert [one.spec for one in found] == [{"day": f"2026-01-0{day}"} for day in (1, 2, 3)]
    assert [(one.record_count, one.file_count) for one in found] == [(1, 1)] * 3
    [one] = catalog.list_partitions_paged(table.name, partition_name_pattern="day=2026-01-02%").elements
    assert one.spec == {"day": "2026-01-02"}


def test_a_table_without_partition_keys_has_no_partitions(catalog: RESTCatalog, database: str) -> None:
    catalog.create_table(f"{database}.plain", orders(), False)
    assert catalog.list_partitions_paged(f"{database}.plain").elements == []
