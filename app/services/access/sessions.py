"""Sessions of people who signed in with a token: short-lived tokens that end with it (docs/decisions/0035)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.catalog.database import CatalogDatabase
from app.core.access import Grant
from app.core.errors import FaultCode, Unauthorized, Violation
from app.services.access.tokens import PREFIX, token_digest

LONGEST: Final = timedelta(hours=12)
LONGEST_PROVIDED: Final = timedelta(hours=1)
_PREFIX: Final = f"{PREFIX}session_"


@dataclass(frozen=True)
class Session:
    """A new session: its grant, its latest end, and its secret text, which is returned only once."""

    grant: Grant
    ends_at: datetime
    secret: str = field(repr=False)


def begin_session(database: CatalogDatabase, token: str) -> Session:
    """Return a new session with the role and scope of ``token``. Revoking the token ends the session.

    Raise ``Unauthorized`` for a text that is no token, or one that was revoked or has expired.
    """
    secret = f"{_PREFIX}{secrets.token_urlsafe(32)}"
    with database.transaction() as repository:
        owner = repository.tokens.named(token_digest(token))
        if owner is None:
            raise unknown_token()
        number, ends_at = secrets.token_hex(8), repository.now() + LONGEST
        session = repository.tokens.begin_session(owner.name, number, token_digest(secret), ends_at)
    return Session(session.grant, session.expires_at or ends_at, secret)


def begin_provided_session(database: CatalogDatabase, grant: Grant) -> Session:
    """Begin a session for a caller of the identity provider. It lasts an hour at most, so a caller whom the provider
    locks out is out by then.
    """
    secret = f"{_PREFIX}{secrets.token_urlsafe(32)}"
    with database.transaction() as repository:
        ends_at = repository.now() + LONGEST_PROVIDED
        repository.tokens.begin_provider_session(grant, secrets.token_hex(8), token_digest(secret), ends_at)
    return Session(grant, ends_at, secret)


def end_session(database: CatalogDatabase, secret: str) -> None:
    """End the session with this text, in every process."""
    with database.transaction() as repository:
        repository.tokens.end_session(token_digest(secret))


def check_no_session(authorization: str | None) -> None:
    """Raise ``Unauthorized`` if a session is sent in place of a token. Sessions are for the console only: a token that
    a program made with one would outlive it.
    """
    if (authorization or "").partition(" ")[2].strip().startswith(_PREFIX):
        message = "this is a session of the console, not an API token"
        fix = "send a token: keyfold token create NAME"
        raise Unauthorized(message, violations=[Violation("", FaultCode.UNKNOWN_TOKEN, message, fix)])


def unknown_token() -> Unauthorized:
    """Return the error of a sign-in with a token that is unknown, revoked, expired or incomplete."""
    message = "unknown token: it was revoked, has expired, or is incomplete"
    fix = "copy the whole token, which begins with kf_, or make another one: keyfold token create NAME"
    return Unauthorized(message, violations=[Violation("", FaultCode.UNKNOWN_TOKEN, message, fix)])
