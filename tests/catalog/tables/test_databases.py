"""Databases of the catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import AlreadyExists, Conflict, ErrorCode, Invalid, NotFound
from tests.catalog.builders import schema


def test_a_created_database_is_read_back_as_it_was_answered(database: CatalogDatabase) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    with database.transaction() as repository:
        created = repository.databases.create("shop", {"owner": "Zoë \ud83d\x00"})
    with database.reading() as repository:
        assert repository.databases.get("shop") == created
    assert created.created_at.utcoffset() == timedelta(0)
    assert before < created.created_at < before + timedelta(hours=1)


def test_a_second_database_of_one_name_is_refused_and_the_transaction_goes_on(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.databases.create("shop", {})
        with pytest.raises(AlreadyExists) as refused:
            repository.databases.create("shop", {})
        repository.databases.create("other", {})
    assert refused.value.code is ErrorCode.DATABASE_ALREADY_EXISTS
    assert (refused.value.resource_type, refused.value.resource_name) == ("DATABASE", "shop")
    with database.reading() as repository:
        assert [each.name for each in repository.databases.page(limit=9)] == ["other", "shop"]


def test_a_missing_database_is_not_found_by_any_operation(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        for operation in (
            lambda: repository.databases.get("none"),
            lambda: repository.databases.update_options("none", [], {}),
            lambda: repository.databases.drop("none"),
            lambda: repository.tables.create("none", "t", schema()),
            lambda: repository.tables.get("none", "t"),
            lambda: repository.tables.page("none", limit=1),
            lambda: repository.tables.drop("none", "t"),
        ):
            with pytest.raises(NotFound) as missing:
                operation()
            assert missing.value.code is ErrorCode.DATABASE_NOT_FOUND
            assert missing.value.resource_name == "none"


def test_pages_of_databases_cover_all_names_once_in_code_point_order(database: CatalogDatabase) -> None:
    names = ["b", "B", "a_c", "abc", "ä", "Z", "a%c", "_", "1"]
    with database.transaction() as repository:
        for name in names:
            repository.databases.create(name, {})
    seen: list[str] = []
    with database.reading() as repository:
        while page := repository.databases.page(after=seen[-1] if seen else None, limit=2):
            seen += [each.name for each in page]
    assert seen == sorted(names)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("a%", ["a%c", "a_c", "abc"]), ("a_c", ["a%c", "a_c", "abc"]), ("a\\_c", ["a_c"]), ("ABC", ["ABC"]), ("b", [])],
)
def test_like_means_the_same_on_both_databases(database: CatalogDatabase, pattern: str, matches: list[str]) -> None:
    with database.transaction() as repository:
        for name in ("a%c", "a_c", "abc", "ABC"):
            repository.databases.create(name, {})
        assert [each.name for each in repository.databases.page(limit=9, like=pattern)] == matches


def test_options_are_removed_and_updated_together(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        created = repository.databases.create("shop", {"a": "1", "b": "2", "c": "3"})
    with database.transaction() as repository:
        changed = repository.databases.update_options("shop", ["a", "unknown"], {"b": "x", "d": "4"})
        assert changed.options == {"b": "x", "c": "3", "d": "4"}
        assert changed.updated_at > created.updated_at
        assert repository.databases.get("shop") == changed


def test_only_an_empty_database_is_dropped(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.databases.create("shop", {})
        repository.tables.create("shop", "t", schema())
        with pytest.raises(Conflict) as refused:
            repository.databases.drop("shop")
        assert refused.value.code is ErrorCode.DATABASE_NOT_EMPTY
        repository.tables.drop("shop", "t")
        repository.databases.drop("shop")
        assert repository.databases.page(limit=9) == []


def test_a_name_that_text_columns_cannot_hold_is_the_callers_fault_or_found_nowhere(database: CatalogDatabase) -> None:
    for name in ("a\x00b", "\ud83d"):
        with pytest.raises((Invalid, NotFound)), database.reading() as repository:
            repository.databases.get(name)
