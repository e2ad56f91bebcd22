"""Bearer tokens of the API, kept as digests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.catalog.failures import refusing
from app.catalog.models import facts, tokens
from app.catalog.transaction import Transaction
from app.core.errors import AlreadyExists, ErrorCode, NotFound


@dataclass(frozen=True)
class ApiToken:
    """A bearer token as its operator knows it: by name. Its text is not kept anywhere."""

    name: str
    created_at: datetime


class Fact(StrEnum):
    """What is true of the whole catalog from a moment on, and never ceases to be."""

    TOKENS_REQUIRED = "tokens_required"  # the API asks for a token: one was made


@dataclass(frozen=True)
class Tokens:
    """What the repository knows about bearer tokens."""

    transaction: Transaction

    def add(self, name: str, digest: str) -> ApiToken:
        """A new token whose text has ``digest``; from the first on tokens are required.

        Raises ``AlreadyExists`` for a name (or a text) in use.
        """
        token = ApiToken(name, self.transaction.now())
        exists = AlreadyExists(
            f"a token {name!r} exists already; choose another name",
            code=ErrorCode.INVALID_REQUEST,
            resource_type="TOKEN",
            resource_name=name,
        )
        with refusing(self.transaction.connection, {"pk_tokens": exists, "uq_tokens_digest": exists}):
            self.transaction.execute(tokens.insert().values(name=name, digest=digest, created_at=token.created_at))
        self._require()
        return token

    def _require(self) -> None:
        insert = postgresql.insert if self.transaction.connection.dialect.name == "postgresql" else sqlite.insert
        fact = insert(facts).values(name=Fact.TOKENS_REQUIRED, since=self.transaction.now())
        self.transaction.execute(fact.on_conflict_do_nothing())

    def required(self) -> bool:
        """Whether the API asks for a token: one was made, be it revoked since."""
        query = sa.select(facts.c.name).where(facts.c.name == Fact.TOKENS_REQUIRED)
        return self.transaction.execute(query).first() is not None

    def digests(self) -> frozenset[str]:
        """The digests of all tokens."""
        return frozenset(self.transaction.execute(sa.select(tokens.c.digest)).scalars())

    def listed(self) -> list[ApiToken]:
        """All tokens in name order."""
        query = sa.select(tokens.c.name, tokens.c.created_at).order_by(tokens.c.name)
        return [ApiToken(row.name, row.created_at) for row in self.transaction.execute(query)]

    def revoke(self, name: str) -> None:
        """Forgets the token, so that it opens nothing any more. Raises ``NotFound``."""
        if self.transaction.execute(tokens.delete().where(tokens.c.name == name)).rowcount == 0:
            raise NotFound(
                f"there is no token {name!r}",
                code=ErrorCode.INVALID_REQUEST,
                resource_type="TOKEN",
                resource_name=name,
            )

    def exist(self) -> bool:
        """Whether there is a token that opens the API."""
        return self.transaction.execute(sa.select(tokens.c.name).limit(1)).first() is not None
