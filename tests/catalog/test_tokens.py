"""Bearer tokens of the catalog."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from app.catalog.database import CatalogDatabase
from app.catalog.models import tokens
from app.core.errors import AlreadyExists, NotFound
from tests.catalog.test_database import ROOT


def test_a_token_is_found_by_its_digest_until_it_is_revoked(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        assert repository.any_tokens() is False
        repository.add_token("ingest", "d1")
        repository.add_token("admin", "d2")
        assert repository.token_digests() == {"d1", "d2"}
        assert [token.name for token in repository.list_tokens()] == ["admin", "ingest"]
        repository.revoke_token("ingest")
        assert repository.token_digests() == {"d2"}
        assert repository.any_tokens() is True


@pytest.mark.parametrize(("name", "digest"), [("ingest", "d2"), ("other", "d1")])
def test_two_tokens_share_neither_name_nor_digest(database: CatalogDatabase, name: str, digest: str) -> None:
    with database.transaction() as repository:
        repository.add_token("ingest", "d1")
        with pytest.raises(AlreadyExists) as refused:
            repository.add_token(name, digest)
        assert refused.value.resource_type == "TOKEN"
        assert [token.name for token in repository.list_tokens()] == ["ingest"]


def test_a_token_that_does_not_exist_cannot_be_revoked(database: CatalogDatabase) -> None:
    with pytest.raises(NotFound), database.transaction() as repository:
        repository.revoke_token("none")


def test_tokens_are_required_from_the_first_on_and_for_good(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        assert repository.tokens_required() is False
        repository.add_token("first", "d1")
        repository.add_token("second", "d2")
    with database.transaction() as repository:
        repository.revoke_token("first")
        repository.revoke_token("second")
        assert (repository.any_tokens(), repository.tokens_required()) == (False, True)


@pytest.mark.parametrize("names", [[], ["till"], ["till", "ci"]])
def test_a_catalog_that_had_tokens_before_this_was_a_fact_requires_them(
    database: CatalogDatabase, names: list[str]
) -> None:
    migrate_to(database, "0002")
    with database.transaction() as repository:
        for name in names:
            row = tokens.insert().values(name=name, digest=name, created_at=datetime.now(UTC))
            repository.connection.execute(row)
    database.migrate()
    with database.reading() as repository:
        assert repository.tokens_required() is bool(names)
        assert sa.inspect(repository.connection).has_table("facts")


def migrate_to(database: CatalogDatabase, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.transaction() as repository:
        config.attributes["connection"] = repository.connection
        command.downgrade(config, revision)
