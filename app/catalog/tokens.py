"""Bearer tokens of the API, kept as digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.catalog.failures import refusing
from app.catalog.models import facts, tokens
from app.catalog.transaction import AnyRow, Transaction
from app.core.access import EVERYBODY, Grant, Role, TokenScope
from app.core.errors import AlreadyExists, ErrorCode, Resource, not_found


@dataclass(frozen=True)
class ApiToken:
    """A bearer token as its operator knows it: by name. Its text is not kept anywhere.

    ``expires_at`` is None where it never does; ``last_used_at`` is a minute or so late, None where it never was.
    """

    name: str
    role: Role
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None

    @property
    def grant(self) -> Grant:
        """What its bearer may do until it expires."""
        return Grant(self.name, self.role, self.scope)


class Fact(StrEnum):
    """What is true of the whole catalog from a moment on, and never ceases to be."""

    TOKENS_REQUIRED = "tokens_required"  # the API asks for a token: one was made


@dataclass(frozen=True)
class Tokens:
    """What the repository knows about bearer tokens."""

    transaction: Transaction

    def add(
        self,
        name: str,
        digest: str,
        role: Role = EVERYBODY.role,
        scope: TokenScope = EVERYBODY.scope,
        expires_at: datetime | None = None,
        created_at: datetime | None = None,
    ) -> ApiToken:
        """A new token whose text has ``digest``, created now if not ``created_at``; from the first on tokens are
        required. One of the same name that has expired is forgotten.

        Raises ``AlreadyExists`` for a name (or a text) in use.
        """
        token = ApiToken(name, role, scope, created_at or self.transaction.now(), expires_at)
        exists = AlreadyExists(
            f"a token {name!r} exists already; choose another name",
            code=ErrorCode.TOKEN_ALREADY_EXISTS,
            resource_type=Resource.TOKEN,
            resource_name=name,
        )
        self.transaction.execute(tokens.delete().where(tokens.c.name == name, tokens.c.expires_at <= token.created_at))
        row = tokens.insert().values(
            name=name,
            digest=digest,
            role=role,
            scope=list(scope.patterns),
            created_at=token.created_at,
            expires_at=expires_at,
        )
        with refusing(self.transaction.connection, {"pk_tokens": exists, "uq_tokens_digest": exists}):
            self.transaction.execute(row)
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

    def by_digest(self) -> Mapping[str, ApiToken]:
        """All tokens, expired ones too, by the digests of their texts."""
        return {row.digest: _token(row) for row in self.transaction.execute(sa.select(tokens))}

    def page(self, *, after: str | None = None, limit: int | None = None) -> list[ApiToken]:
        """Up to ``limit`` tokens in name order, those after the name ``after``; without a limit all of them."""
        query = sa.select(tokens).order_by(tokens.c.name).limit(limit)
        if after is not None:
            query = query.where(tokens.c.name > after)
        return [_token(row) for row in self.transaction.execute(query)]

    def revoke(self, name: str) -> None:
        """Forgets the token, so that it opens nothing any more. Raises ``NotFound``."""
        if self.transaction.execute(tokens.delete().where(tokens.c.name == name)).rowcount == 0:
            raise not_found(Resource.TOKEN, name)

    def note_uses(self, times: Mapping[str, datetime]) -> None:
        """Keeps when the tokens, by name, were last used, unless a later use is kept already."""
        for name, used_at in times.items():
            older = sa.or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < used_at)
            update = tokens.update().where(tokens.c.name == name, older).values(last_used_at=used_at)
            self.transaction.connection.execute(update)  # not a change of who may call: gates need not look again

    def exist(self) -> bool:
        """Whether there is a token that opens the API now."""
        living = sa.or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > self.transaction.now())
        return self.transaction.execute(sa.select(tokens.c.name).where(living).limit(1)).first() is not None


def _token(row: AnyRow) -> ApiToken:
    scope = TokenScope.parse(row.scope)
    return ApiToken(row.name, row.role, scope, row.created_at, row.expires_at, row.last_used_at)
