"""Databases by Paimon's client."""

from __future__ import annotations

import os
import uuid

import pytest
from conftest import Orders, opened, orders
from pypaimon.catalog.catalog_exception import DatabaseAlreadyExistException, DatabaseNotExistException
from pypaimon.catalog.rest.property_change import PropertyChange
from pypaimon.catalog.rest.rest_catalog import RESTCatalog


def test_a_database_is_created_and_shown_with_its_options(catalog: RESTCatalog) -> None:
    name = f"with space + plus {uuid.uuid4().hex[:8]}"
    catalog.create_database(name, False, {"owner-team": "a b"})
    found = catalog.get_database(name)
    assert (found.name, found.options["owner-team"]) == (name, "a b")
    assert name in catalog.list_databases()
    catalog.drop_database(name)
    assert name not in catalog.list_databases()


def test_a_database_that_exists_is_reported_or_passed_over(catalog: RESTCatalog, database: str) -> None:
    with pytest.raises(DatabaseAlreadyExistException):
        catalog.create_database(database, ignore_if_exists=False)
    catalog.create_database(database, ignore_if_exists=True)


def test_a_database_that_does_not_exist_is_reported_or_passed_over(catalog: RESTCatalog) -> None:
    for asked in (catalog.get_database, catalog.list_tables, catalog.list_tables_paged, catalog.drop_database):
        with pytest.raises(DatabaseNotExistException):
            asked("nowhere")
    with pytest.raises(DatabaseNotExistException):
        catalog.drop_database("nowhere", cascade=True)
    with pytest.raises(DatabaseNotExistException):
        catalog.alter_database("nowhere", [PropertyChange.set_property("a", "1")])
    catalog.drop_database("nowhere", ignore_if_not_exists=True)
    catalog.drop_database("nowhere", ignore_if_not_exists=True, cascade=True)


def test_options_of_a_database_are_set_and_removed(catalog: RESTCatalog, database: str) -> None:
    catalog.alter_database(database, [PropertyChange.set_property(key, key.upper()) for key in ("a", "b")])
    catalog.alter_database(database, [PropertyChange.remove_property("a"), PropertyChange.set_property("b", "2")])
    options = catalog.get_database(database).options
    assert ("a" in options, options["b"]) == (False, "2")


def test_databases_are_listed_by_page_and_by_pattern(catalog: RESTCatalog) -> None:
    start = f"p{uuid.uuid4().hex[:8]}"
    names = [f"{start}x{number}" for number in range(5)]
    for name in names:
        catalog.create_database(name, False)
    found: list[str] = []
    token = None
    while True:
        page = catalog.list_databases_paged(2, token, f"{start}x%")
        assert len(page.elements) <= 2
        found += page.elements
        token = page.next_page_token
        if not token:
            break
    assert found == names
    assert catalog.list_databases_paged(database_name_pattern=f"{start}\\_%").elements == []


def test_an_empty_database_is_dropped_with_and_without_cascade(catalog: RESTCatalog) -> None:
    for cascade in (True, False):
        catalog.create_database("empty", False)
        catalog.drop_database("empty", cascade=cascade)
        assert "empty" not in catalog.list_databases()


def test_a_database_with_tables_goes_by_cascade_alone_and_takes_their_files(
    catalog: RESTCatalog, table: Orders
) -> None:
    catalog.create_table(f"{table.database}.second", orders(), False)
    table.post({"id": 1, "name": "a"})
    files = table.files()
    assert files
    with pytest.raises(ValueError, match="is not empty"):
        catalog.drop_database(table.database)
    assert sorted(catalog.list_tables(table.database)) == ["orders", "second"]
    catalog.drop_database(table.database, cascade=True)
    with pytest.raises(DatabaseNotExistException):
        catalog.get_database(table.database)
    assert not [name for name in files if os.path.exists(name)]


def test_the_catalog_is_opened_with_a_slash_at_the_end_of_its_address(catalog: RESTCatalog, database: str) -> None:
    assert database in opened(uri=f"{catalog.rest_api.client.uri}/").list_databases()
