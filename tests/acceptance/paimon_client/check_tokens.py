"""Paimon's client at a service that asks for tokens: KEYFOLD_TOKEN may read the database ``shop``, nothing else."""

from __future__ import annotations

import pytest
from conftest import opened, orders
from pypaimon.api.rest_exception import ForbiddenException, NotAuthorizedException
from pypaimon.catalog.catalog_exception import DatabaseNoPermissionException, TableNoPermissionException
from pypaimon.catalog.rest.rest_catalog import RESTCatalog
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.instant import Instant


def test_a_token_shows_what_it_is_for(catalog: RESTCatalog) -> None:
    assert catalog.list_databases() == ["shop"]
    assert catalog.list_tables("shop") == ["orders"]
    assert catalog.get_table("shop.orders").field_names == ["id", "name"]
    assert catalog.load_snapshot("shop.orders") is None
    assert catalog.list_tags_paged("shop.orders").elements == []


def test_a_wrong_token_opens_no_catalog() -> None:
    with pytest.raises(NotAuthorizedException):
        opened(token="wrong")  # noqa: S106  # it is none


def test_what_a_token_may_not_do_is_reported_as_such(catalog: RESTCatalog) -> None:
    for asked in (
        lambda: catalog.create_database("other", False),
        lambda: catalog.drop_database("shop", cascade=True),
        lambda: catalog.alter_database("shop", []),
        lambda: catalog.get_database("hidden"),
        lambda: catalog.list_tables("hidden"),
    ):
        with pytest.raises(DatabaseNoPermissionException):
            asked()
    for asked in (
        lambda: catalog.drop_table("shop.orders"),
        lambda: catalog.rename_table("shop.orders", "shop.other"),
        lambda: catalog.alter_table("shop.orders", [SchemaChange.drop_column("name")], ignore_if_not_exists=True),
        lambda: catalog.rollback_to("shop.orders", Instant.snapshot(1)),
        lambda: catalog.create_tag("shop.orders", "v1"),
        lambda: catalog.get_table("hidden.orders"),
    ):
        with pytest.raises(TableNoPermissionException):
            asked()
    with pytest.raises(ForbiddenException):
        catalog.create_table("shop.second", orders(), False)
    assert catalog.list_tables("shop") == ["orders"]
