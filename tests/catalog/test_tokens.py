"""Bearer tokens of the catalog."""

from __future__ import annotations

import pytest

from app.catalog.database import CatalogDatabase
from app.core.errors import AlreadyExists, NotFound


def test_a_token_is_found_by_its_digest_until_it_is_revoked(database: CatalogDatabase) -> None:
    with database.transaction() as repository:
        assert repository.any_tokens() is False
        repository.add_token("ingest", "d1")
        repository.add_token("admin", "d2")
        assert repository.find_token("d1") == "ingest"
        assert [token.name for token in repository.list_tokens()] == ["admin", "ingest"]
        repository.revoke_token("ingest")
        assert repository.find_token("d1") is None
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
