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
        assert repository.tokens.exist() is False
        repository.tokens.add("ingest", "d1")
        repository.tokens.add("admin", "d2")
        assert repository.tokens.digests() == {"d1", "d2"}
        assert [token.name for token in repository.tokens.listed()] == ["admin", "ingest"]
        repository.tokens.revoke("ingest")
        assert repository.tokens.digests() == {"d2"}
        assert repository.tokens.exist() is True


@pytest.mark.parametrize(("name", "digest"), [("ingest", "d2"), ("other", "d1")])
def test_two_tokens_share_neither_name_nor_digest(database: CatalogDatabase, name: str, digest: str) -> None:
    with database.transaction() as repository:
        repository.tokens.add("ingest", "d1")
        with pytest.raises(AlreadyExists) as refused:
            repository.tokens.add(name, digest)
        assert refused.value.resource_type == "TOKEN"
        assert [token.name for token in repository.tokens.listed()] == ["ingest"]


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
    migrate_to(database, "0002")
    with database.transaction() as repository:
        for name in names:
            row = tokens.insert().values(name=name, digest=name, created_at=datetime.now(UTC))
            repository.transaction.execute(row)
    database.migrate()
    with database.reading() as repository:
        assert repository.tokens.required() is bool(names)
        assert sa.inspect(repository.transaction.connection).has_table("facts")


def migrate_to(database: CatalogDatabase, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.transaction() as repository:
        config.attributes["connection"] = repository.transaction.connection
        command.downgrade(config, revision)
