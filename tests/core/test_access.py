"""Roles and scopes: what a token is for, how that is written, and what is told who lacks it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access import EVERYBODY, MOST_PATTERNS, Grant, Role, TokenScope, pattern_of
from app.core.errors import FaultCode, Forbidden, Invalid

NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
ORDERS = TokenScope.parse(["shop.orders", "hr.*"])


def test_each_role_may_do_what_those_before_it_may() -> None:
    assert list(Role) == [Role.READ, Role.WRITE, Role.ADMIN]
    for number, other in itertools.product(range(3), range(3)):
        assert list(Role)[number].includes(list(Role)[other]) is (number >= other)


def test_a_star_is_everything() -> None:
    scope = TokenScope.parse(["*"])
    assert scope.everything
    assert scope.covers("shop")
    assert scope.covers("shop", "orders")
    assert (scope.shown_databases, scope.shown_tables("shop")) == (None, None)


def test_a_database_is_all_its_tables_and_no_other_database() -> None:
    assert ORDERS.covers("hr")
    assert ORDERS.covers("hr", "anything")
    assert not ORDERS.covers("hr2")
    assert not ORDERS.covers("hr.people", "x")
    assert ORDERS.shown_tables("hr") is None


def test_a_table_is_itself_and_shows_its_database() -> None:
    assert ORDERS.covers("shop", "orders")
    assert not ORDERS.covers("shop", "orders2")
    assert not ORDERS.covers("shop")
    assert ORDERS.shows("shop")
    assert not ORDERS.shows("shopping")
    assert ORDERS.shown_tables("shop") == {"orders"}
    assert set(ORDERS.shown_databases or ()) == {"shop", "hr"}


@pytest.mark.parametrize(
    ("pattern", "database", "table"),
    [
        ("`a.b`.c", "a.b", "c"),
        ("a.`b.c`", "a", "b.c"),
        ("`*`.`*`", "*", "*"),
        ("shop.`%`", "shop", "%"),
        ("`a``b`.`c d`", "a`b", "c d"),
        ("größe.表", "größe", "表"),
        ("a-b_1.C", "a-b_1", "C"),
    ],
)
def test_names_that_are_not_plain_stand_in_backticks(pattern: str, database: str, table: str) -> None:
    assert TokenScope.parse([pattern]) == TokenScope(tables=frozenset({(database, table)}))
    assert pattern_of(database, table) == pattern


@pytest.mark.parametrize(
    "text",
    [
        *("", "shop", "shop.", ".orders", "shop.ord*", "*.orders", "*.*", "**", "shop..orders", "a.b.c", " shop.*"),
        *("shop.* ", "shop.orders,hr.*", "shop orders.x", "`shop.orders", "``.a", "a.``", "a.`b`c", "shop.*\n"),
        *("shop/orders", "shop.%", "shop.ord?", "shop.[a-z]", "shop.a|b", "a.\x00", "a.\ud800", "a." + "b" * 256),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        TokenScope.parse(["*", text], "/on")
    [fault] = refused.value.violations
    assert (fault.pointer, fault.code) == ("/on/1", FaultCode.ILLEGAL_SCOPE)
    assert "shop.*" in fault.fix


def test_a_scope_has_patterns_and_not_too_many() -> None:
    for patterns in ([], ["*"] * (MOST_PATTERNS + 1)):
        with pytest.raises(Invalid, match="1 to 100"):
            TokenScope.parse(patterns)


@given(st.lists(st.tuples(NAMES, st.none() | NAMES), min_size=1, max_size=5))
def test_patterns_say_what_the_scope_is(names: list[tuple[str, str | None]]) -> None:
    scope = TokenScope.parse([pattern_of(database, table) for database, table in names])
    assert TokenScope.parse(scope.patterns) == scope
    assert all(scope.covers(database, table) and scope.shows(database) for database, table in names)
    assert scope.databases == {database for database, table in names if table is None}
    assert scope.tables == {(database, table) for database, table in names if table is not None}


def codes(refused: pytest.ExceptionInfo[Forbidden]) -> list[FaultCode]:
    return [fault.code for fault in refused.value.violations]


def test_who_lacks_role_and_scope_is_reported_both_and_what_to_do() -> None:
    grant = Grant("till", Role.READ, ORDERS)
    with pytest.raises(Forbidden) as refused:
        grant.check_table(Role.WRITE, "shop", "o'brien")
    assert codes(refused) == [FaultCode.MISSING_ROLE, FaultCode.MISSING_SCOPE]
    assert refused.value.message == (
        "this needs the role write, and the token 'till' has the role read;"
        " this needs a token for shop.`o'brien`, and the token 'till' is for hr.*, shop.orders"
    )
    assert refused.value.violations[0].fix.endswith("create NAME --role write --on 'shop.`o'\"'\"'brien`'")


def test_a_part_of_a_database_is_not_the_database_and_no_database_is_the_service() -> None:
    grant = Grant("till", Role.ADMIN, ORDERS)
    grant.check_role(Role.ADMIN)
    grant.check_part(Role.ADMIN, "shop")
    grant.check_database(Role.ADMIN, "hr")
    grant.check_table(Role.ADMIN, "hr", "any")
    for check in (
        lambda: grant.check_database(Role.READ, "shop"),
        lambda: grant.check_part(Role.READ, "other"),
        lambda: grant.check_service(Role.READ),
    ):
        with pytest.raises(Forbidden) as refused:
            check()
        assert codes(refused) == [FaultCode.MISSING_SCOPE]


def test_everybody_may_do_everything() -> None:
    EVERYBODY.check_service(Role.ADMIN)
    EVERYBODY.check_table(Role.ADMIN, "any", "table")
