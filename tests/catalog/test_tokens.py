"""Bearer tokens of the catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from app.catalog.database import CatalogDatabase
from app.catalog.shared.marks import TOKENS
from app.catalog.shared.models import tokens
from app.catalog.tokens import MOST_SESSIONS
from app.core.access import EVERYBODY, Grant, Role, TokenScope
from app.core.errors import AlreadyExists, NotFound
from tests.catalog.test_database import downgrade


def test_a_token_is_found_by_its_digest_until_it_is_revoked(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        assert repository.tokens.exist() is False
        repository.tokens.add("ingest", "d1")
        repository.tokens.add("admin", "d2")
        assert {digest: one.name for digest, one in repository.tokens.by_digest().items()} == {
            "d1": "ingest",
            "d2": "admin",
        }
        assert [token.name for token in repository.tokens.page()] == ["admin", "ingest"]
        assert [token.name for token in repository.tokens.page(after="admin", limit=1)] == ["ingest"]
        repository.tokens.revoke("ingest")
        assert set(repository.tokens.by_digest()) == {"d2"}
        assert repository.tokens.exist() is True


@pytest.mark.parametrize(("name", "digest"), [("ingest", "d2"), ("other", "d1")])
def test_two_tokens_share_neither_name_nor_digest(database: CatalogDatabase, name: str, digest: str) -> None:
    with database.transaction() as repository:
        repository.tokens.add("ingest", "d1")
        with pytest.raises(AlreadyExists) as refused:
            repository.tokens.add(name, digest)
        assert refused.value.resource_type == "TOKEN"
        assert [token.name for token in repository.tokens.page()] == ["ingest"]


def test_a_token_keeps_what_it_may_do_and_until_when(database: CatalogDatabase) -> None:
    scope, expires_at = TokenScope.parse(["shop.*", "`a.b`.c"]), datetime(2027, 1, 31, tzinfo=UTC)
    with database.transaction() as repository:
        made = repository.tokens.add("till", "d1", Role.WRITE, scope, expires_at)
        assert repository.tokens.page() == [made]
        assert (made.role, made.scope, made.expires_at, made.last_used_at) == (Role.WRITE, scope, expires_at, None)


def test_a_token_is_used_at_the_latest_time_that_was_reported_and_no_gate_looks_again(
    database: CatalogDatabase,
) -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    with database.transaction() as repository:
        repository.tokens.add("till", "d1")
    mark = database.marks.mark(TOKENS)
    with database.transaction() as repository:
        repository.tokens.note_uses({"till": late, "revoked": late})
        repository.tokens.note_uses({"till": early})
        assert [token.last_used_at for token in repository.tokens.page()] == [late]
    assert database.marks.mark(TOKENS) == mark


def test_the_name_of_an_expired_token_is_free_and_it_opens_nothing(catalog_url: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    database = CatalogDatabase(catalog_url, clock=lambda: now)
    with database.transaction() as repository:
        repository.tokens.add("till", "d1", expires_at=now + timedelta(seconds=1))
        assert repository.tokens.exist() is True
    with pytest.raises(AlreadyExists), database.transaction() as repository:
        repository.tokens.add("till", "d2")
    now += timedelta(seconds=1)
    with database.transaction() as repository:
        assert repository.tokens.exist() is False
        repository.tokens.add("till", "d2")
        assert set(repository.tokens.by_digest()) == {"d2"}
    database.close()


def test_tokens_of_before_there_were_roles_open_everything(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        downgrade(repository, "0005")
        row = tokens.insert().values(name="till", digest="d1", created_at=datetime.now(UTC))
        repository.transaction.execute(row)
    database.migrate()
    with database.reading() as repository:
        [token] = repository.tokens.page()
    assert token.grant == Grant("till", EVERYBODY.role, EVERYBODY.scope)
    assert (token.expires_at, token.last_used_at) == (None, None)


def test_a_catalog_without_roles_forgets_tokens_that_open_less(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.tokens.add("all", "d1")
        repository.tokens.add("reader", "d2", Role.READ)
        repository.tokens.add("scoped", "d3", scope=TokenScope.parse(["shop.*"]))
        repository.tokens.add("expires", "d4", expires_at=datetime(2999, 1, 1, tzinfo=UTC))
        downgrade(repository, "0005")
    database.migrate()
    with database.reading() as repository:
        assert [token.name for token in repository.tokens.page()] == ["all"]


def test_a_token_that_does_not_exist_cannot_be_revoked(database: CatalogDatabase) -> None:
    with pytest.raises(NotFound), database.transaction() as repository:
        repository.tokens.revoke("none")


def test_tokens_are_required_from_the_first_on_and_for_good(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        assert repository.tokens.required() is False
        repository.tokens.add("first", "d1")
        repository.tokens.add("second", "d2")
    with database.transaction() as repository:
        repository.tokens.revoke("first")
        repository.tokens.revoke("second")
        assert (repository.tokens.exist(), repository.tokens.required()) == (False, True)


@pytest.mark.parametrize("names", [[], ["till"], ["till", "ci"]])
def test_a_catalog_that_had_tokens_before_this_was_a_fact_requires_them(
    database: CatalogDatabase, names: list[str]
) -> None:
    with database.transaction() as repository:
        downgrade(repository, "0002")
        for name in names:
            row = tokens.insert().values(name=name, digest=name, created_at=datetime.now(UTC))
            repository.transaction.execute(row)
    database.migrate()
    with database.reading() as repository:
        assert repository.tokens.required() is bool(names)
        assert sa.inspect(repository.transaction.connection).has_table("facts")


def test_a_session_is_like_its_token_and_ends_with_it(database: CatalogDatabase) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    scope = TokenScope.parse(["shop.*"])
    with database.transaction() as repository:
        repository.tokens.add("till", "d1", Role.WRITE, scope, later)
        session = repository.tokens.begin_session("till", "1", "s1", later + timedelta(hours=1))
        assert (session.grant, session.expires_at) == (Grant("till", Role.WRITE, scope), later)
        assert [token.name for token in repository.tokens.page()] == ["till"]
        assert (repository.tokens.named("d1"), repository.tokens.named("s1")) == (repository.tokens.page()[0], None)
        repository.tokens.end_session("d1")  # no session: a token is revoked, not signed out
        assert set(repository.tokens.by_digest()) == {"d1", "s1"}
        repository.tokens.revoke("till")
        assert set(repository.tokens.by_digest()) == set()
        with pytest.raises(NotFound):
            repository.tokens.begin_session("till", "2", "s2", later)


def test_of_many_sessions_the_oldest_end(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.tokens.add("till", "d1")
        later = repository.now() + timedelta(hours=1)
        for number in range(MOST_SESSIONS + 2):
            repository.tokens.begin_session("till", str(number), f"s{number}", later)
        kept = set(repository.tokens.by_digest())
    assert kept == {"d1", *(f"s{number}" for number in range(2, MOST_SESSIONS + 2))}


def test_sessions_that_are_over_make_room(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        repository.tokens.add("till", "d1")
        repository.tokens.begin_session("till", "1", "s1", repository.now() - timedelta(seconds=1))
        repository.tokens.begin_session("till", "2", "s2", repository.now() + timedelta(hours=1))
        assert set(repository.tokens.by_digest()) == {"d1", "s2"}
