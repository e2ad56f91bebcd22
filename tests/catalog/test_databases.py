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
        created = repository.create_database("shop", {"owner": "Zoë \ud83d\x00"})
    with database.reading() as repository:
        assert repository.get_database("shop") == created
    assert created.created_at.utcoffset() == timedelta(0)
    assert before < created.created_at < before + timedelta(hours=1)


def test_a_second_database_of_one_name_is_refused_and_the_transaction_goes_on(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.create_database("shop", {})
        with pytest.raises(AlreadyExists) as refused:
            repository.create_database("shop", {})
        repository.create_database("other", {})
    assert refused.value.code is ErrorCode.DATABASE_ALREADY_EXISTS
    assert (refused.value.resource_type, refused.value.resource_name) == ("DATABASE", "shop")
    with database.reading() as repository:
        assert [each.name for each in repository.list_databases(limit=9)] == ["other", "shop"]


def test_a_missing_database_is_not_found_by_any_operation(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        for operation in (
            lambda: repository.get_database("none"),
            lambda: repository.update_database_options("none", [], {}),
            lambda: repository.drop_database("none"),
            lambda: repository.create_table("none", "t", schema()),
            lambda: repository.get_table("none", "t"),
            lambda: repository.list_tables("none", limit=1),
            lambda: repository.drop_table("none", "t"),
        ):
            with pytest.raises(NotFound) as missing:
                operation()
            assert missing.value.code is ErrorCode.DATABASE_NOT_FOUND
            assert missing.value.resource_name == "none"


def test_pages_of_databases_cover_all_names_once_in_code_point_order(database: CatalogDatabase) -> None:
    names = ["b", "B", "a_c", "abc", "ä", "Z", "a%c", "_", "1"]
    with database.transaction() as repository:
        for name in names:
            repository.create_database(name, {})
    seen: list[str] = []
    with database.reading() as repository:
        while page := repository.list_databases(after=seen[-1] if seen else None, limit=2):
            seen += [each.name for each in page]
    assert seen == sorted(names)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("a%", ["a%c", "a_c", "abc"]), ("a_c", ["a%c", "a_c", "abc"]), ("a\\_c", ["a_c"]), ("ABC", ["ABC"]), ("b", [])],
)
def test_like_means_the_same_on_both_databases(database: CatalogDatabase, pattern: str, matches: list[str]) -> None:
    with database.transaction() as repository:
        for name in ("a%c", "a_c", "abc", "ABC"):
            repository.create_database(name, {})
        assert [each.name for each in repository.list_databases(limit=9, like=pattern)] == matches


def test_options_are_removed_and_updated_together(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        created = repository.create_database("shop", {"a": "1", "b": "2", "c": "3"})
    with database.transaction() as repository:
        changed = repository.update_database_options("shop", ["a", "unknown"], {"b": "x", "d": "4"})
        assert changed.options == {"b": "x", "c": "3", "d": "4"}
        assert changed.updated_at > created.updated_at
        assert repository.get_database("shop") == changed


def test_only_an_empty_database_is_dropped(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.create_database("shop", {})
        repository.create_table("shop", "t", schema())
        with pytest.raises(Conflict) as refused:
            repository.drop_database("shop")
        assert refused.value.code is ErrorCode.DATABASE_NOT_EMPTY
        repository.drop_table("shop", "t")
        repository.drop_database("shop")
        assert repository.list_databases(limit=9) == []


def test_a_name_that_text_columns_cannot_hold_is_the_callers_fault_or_found_nowhere(database: CatalogDatabase) -> None:
    for name in ("a\x00b", "\ud83d"):
        with pytest.raises((Invalid, NotFound)), database.reading() as repository:
            repository.get_database(name)
