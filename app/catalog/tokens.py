"""Bearer tokens of the API, kept as digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from app.catalog.shared.failures import refusing
from app.catalog.shared.models import facts, tokens
from app.catalog.shared.transaction import AnyRow, Transaction
from app.core.access import EVERYBODY, Grant, Role, TokenScope
from app.core.errors import AlreadyExists, ErrorCode, Resource, not_found

# Names of sessions begin with it, those of tokens never do (``access.tokens``): ``~boss~5f3a…`` is of ``boss``.
SESSION: Final = "~"
MOST_SESSIONS: Final = 100


@dataclass(frozen=True)
class ApiToken:
    """A bearer token, identified by its name. Its text is not stored, except the ``secret`` of a token that signs
    requests.

    ``expires_at`` is None if it never does; ``last_used_at`` is a minute or so late, None if it never was.
    """

    name: str
    role: Role
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    secret: str | None = field(default=None, repr=False)

    @property
    def grant(self) -> Grant:
        """The grant of its bearer, until it expires; a session acts under the name of its token."""
        return Grant(self.owner, self.role, self.scope)

    @property
    def owner(self) -> str:
        """The name of the token itself, or of the one that the session was begun with."""
        return self.name[1:].rpartition(SESSION)[0] if self.name.startswith(SESSION) else self.name


class Fact(StrEnum):
    """Facts about the whole catalog, and since when they hold."""

    TOKENS_REQUIRED = "tokens_required"  # the API requires a token: one was created
    BACKED_UP = "backed_up"  # since the last backup ended


@dataclass(frozen=True)
class Tokens:
    """Reads and writes bearer tokens and sessions."""

    transaction: Transaction

    def add(
        self,
        name: str,
        digest: str,
        role: Role = EVERYBODY.role,
        scope: TokenScope = EVERYBODY.scope,
        expires_at: datetime | None = None,
        created_at: datetime | None = None,
        secret: str | None = None,
    ) -> ApiToken:
        """Return a new token whose text has ``digest``, created at ``created_at``, by default now. After the first
        token, requests need one. An expired token of the same name is deleted. ``secret`` is its text if it signs
        requests.

        Raise ``AlreadyExists`` for a name (or a text) in use.
        """
        token = ApiToken(name, role, scope, created_at or self.transaction.now(), expires_at, secret=secret)
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
            secret=secret,
        )
        with refusing(self.transaction.connection, {"pk_tokens": exists, "uq_tokens_digest": exists}):
            self.transaction.execute(row)
        self._require()
        return token

    def begin_session(self, owner: str, number: str, digest: str, expires_at: datetime) -> ApiToken:
        """Return a session with the grant of the token ``owner``. It ends with that token, at ``expires_at`` at the
        latest, or by sign-out. Beyond ``MOST_SESSIONS`` of one token the oldest ends.

        Raise ``NotFound`` for an owner that was revoked.
        """
        # A revocation waits for this transaction.
        query = sa.select(tokens).where(tokens.c.name == owner).with_for_update()
        row = self.transaction.execute(query).first()
        if row is None:
            raise not_found(Resource.TOKEN, owner)
        now = self.transaction.now()
        self._make_room(owner, now)
        ends_at = expires_at if row.expires_at is None else min(expires_at, row.expires_at)
        session = ApiToken(f"{SESSION}{owner}{SESSION}{number}", row.role, TokenScope.parse(row.scope), now, ends_at)
        values = {"name": session.name, "digest": digest, "created_at": now, "expires_at": ends_at}
        self.transaction.execute(tokens.insert().values(role=row.role, scope=row.scope, **values))
        return session

    def begin_provider_session(self, grant: Grant, number: str, digest: str, expires_at: datetime) -> ApiToken:
        """Store a session for a caller of the identity provider. End the oldest beyond ``MOST_SESSIONS``."""
        now = self.transaction.now()
        self._make_room(grant.name, now)
        name = f"{SESSION}{grant.name}{SESSION}{number}"
        values = {"role": grant.role, "scope": list(grant.scope.patterns), "created_at": now, "expires_at": expires_at}
        self.transaction.execute(tokens.insert().values(name=name, digest=digest, **values))
        return ApiToken(name, grant.role, grant.scope, now, expires_at)

    def _make_room(self, owner: str, now: datetime) -> None:
        self.transaction.execute(tokens.delete().where(_session_of(owner), tokens.c.expires_at <= now))
        newest = sa.select(tokens.c.name).where(_session_of(owner)).order_by(tokens.c.created_at.desc())
        too_many = [*self.transaction.execute(newest.offset(MOST_SESSIONS - 1)).scalars()]
        if too_many:
            self.transaction.execute(tokens.delete().where(tokens.c.name.in_(too_many)))

    def end_session(self, digest: str) -> None:
        """Delete the session whose text has ``digest``, if there is one."""
        self.transaction.execute(tokens.delete().where(tokens.c.digest == digest, _IS_SESSION))

    def named(self, digest: str) -> ApiToken | None:
        """Return the token, no session, whose text has ``digest``; None if there is none, or it has expired."""
        row = self.transaction.execute(sa.select(tokens).where(tokens.c.digest == digest, ~_IS_SESSION)).first()
        living = row is not None and (row.expires_at is None or row.expires_at > self.transaction.now())
        return _token(row) if row is not None and living else None

    def _require(self) -> None:
        insert = postgresql.insert if self.transaction.connection.dialect.name == "postgresql" else sqlite.insert
        fact = insert(facts).values(name=Fact.TOKENS_REQUIRED, since=self.transaction.now())
        self.transaction.execute(fact.on_conflict_do_nothing())

    def required(self) -> bool:
        """Return whether the API requires a token: one was created, even if it was revoked since."""
        query = sa.select(facts.c.name).where(facts.c.name == Fact.TOKENS_REQUIRED)
        return self.transaction.execute(query).first() is not None

    def next_expiry(self) -> datetime | None:
        """Return when the next token expires, no session; None if none does."""
        alive = tokens.c.expires_at > self.transaction.now()
        return self.transaction.execute(sa.select(sa.func.min(tokens.c.expires_at)).where(alive, ~_IS_SESSION)).scalar()

    def backed_up(self) -> None:
        """Record that a backup ended now."""
        insert = postgresql.insert if self.transaction.connection.dialect.name == "postgresql" else sqlite.insert
        now = self.transaction.now()
        fact = insert(facts).values(name=Fact.BACKED_UP, since=now)
        self.transaction.execute(fact.on_conflict_do_update(index_elements=["name"], set_={"since": now}))

    def backed_up_at(self) -> datetime | None:
        """Return when the last backup ended; None before the first."""
        return self.transaction.execute(sa.select(facts.c.since).where(facts.c.name == Fact.BACKED_UP)).scalar()

    def by_digest(self) -> Mapping[str, ApiToken]:
        """Return all tokens and sessions, expired ones too, by the digests of their texts."""
        return {row.digest: _token(row) for row in self.transaction.execute(sa.select(tokens))}

    def page(self, *, after: str | None = None, limit: int | None = None) -> list[ApiToken]:
        """Return up to ``limit`` tokens, no sessions, in name order, after the name ``after``; without a limit all of
        them.
        """
        query = sa.select(tokens).where(~_IS_SESSION).order_by(tokens.c.name).limit(limit)
        if after is not None:
            query = query.where(tokens.c.name > after)
        return [_token(row) for row in self.transaction.execute(query)]

    def revoke(self, name: str) -> None:
        """Delete the token and its sessions, which are refused from then on. Raise ``NotFound``."""
        if self.transaction.execute(tokens.delete().where(tokens.c.name == name)).rowcount == 0:
            raise not_found(Resource.TOKEN, name)
        self.transaction.execute(tokens.delete().where(_session_of(name)))

    def note_uses(self, times: Mapping[str, datetime]) -> None:
        """Store when the tokens, by name, were last used, unless a later use is stored already."""
        for name, used_at in times.items():
            older = sa.or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < used_at)
            update = tokens.update().where(tokens.c.name == name, older).values(last_used_at=used_at)
            self.transaction.connection.execute(update)  # no grant changes: gates need not read the tokens again

    def exist(self) -> bool:
        """Return whether there is a valid token for the API."""
        living = sa.or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > self.transaction.now())
        return self.transaction.execute(sa.select(tokens.c.name).where(living).limit(1)).first() is not None


_IS_SESSION: Final = tokens.c.name.startswith(SESSION)


def _session_of(owner: str) -> sa.ColumnElement[bool]:
    return tokens.c.name.startswith(f"{SESSION}{owner}{SESSION}", autoescape=True)


def _token(row: AnyRow) -> ApiToken:
    scope = TokenScope.parse(row.scope)
    return ApiToken(row.name, row.role, scope, row.created_at, row.expires_at, row.last_used_at, row.secret)
