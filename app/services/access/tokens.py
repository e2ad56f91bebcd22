"""API tokens: created once, stored as digests, listed and revoked;
``app.services.access.token_gate`` validates them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ApiToken, Repository
from app.core.access import EVERYTHING, Role, TokenScope
from app.core.errors import FaultCode, Invalid, Violation
from app.core.table.options.values import duration
from app.services.access.webhooks import new_secret
from app.services.shared.pages import Page, PageRequest, page_of

PREFIX: Final = "kf_"
LONGEST_NAME: Final = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")


@dataclass(frozen=True)
class Wish:
    """A token to make; ``on`` are patterns of ``TokenScope``, ``expires`` is a duration (``90d``) or a time.
    ``webhook``: its bearer signs requests with it.
    """

    name: str
    role: Role = Role.ADMIN
    on: Sequence[str] = (EVERYTHING,)
    expires: str | None = None
    webhook: bool = False


@dataclass(frozen=True)
class MadeToken:
    """A token and its text, which is not shown again."""

    token: ApiToken
    secret: str = field(repr=False)


def token_digest(token: str) -> str:
    """Return the SHA-256 of the token, in hexadecimal digits.

    A slow, salted hash protects texts that people choose, which can be guessed. Tokens hold 256 random bits, which
    cannot be guessed from a digest; a slow hash would only delay every request.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def create_token(
    database: CatalogDatabase,
    name: str,
    role: Role = Role.ADMIN,
    on: Sequence[str] = (EVERYTHING,),
    expires: str | None = None,
) -> str:
    """Return the text of a new token, in a separate transaction; see ``make_token``."""
    with database.transaction() as repository:
        return make_token(repository, Wish(name, role, on, expires)).secret


def make_token(repository: Repository, wish: Wish) -> MadeToken:
    """Return a new token with its text, which is returned only once. After the first token, every request needs one.

    Raise ``Invalid`` with every fault of the wish, ``AlreadyExists`` if a token that has not expired has the name.
    """
    faults = [*_name_violations(wish.name)]
    scope, expires_at, now = TokenScope(), None, repository.now()
    try:
        scope = TokenScope.parse(wish.on, "/on")
    except Invalid as invalid:
        faults += invalid.violations
    try:
        expires_at = None if wish.expires is None else _expiry(wish.expires, now)
    except ValueError as error:
        message = f"{wish.expires!r} is not an expiry time"
        faults.append(Violation("/expires", FaultCode.ILLEGAL_EXPIRY, message, str(error)))
    if faults:
        message = "; ".join(f"{fault.message}: {fault.fix}" for fault in faults)
        raise Invalid(f"the token is not valid: {message}", violations=faults)
    secret = new_secret() if wish.webhook else PREFIX + secrets.token_urlsafe(32)
    stored_secret = secret if wish.webhook else None
    made = repository.tokens.add(wish.name, token_digest(secret), wish.role, scope, expires_at, now, stored_secret)
    return MadeToken(made, secret)


def _name_violations(name: str) -> Iterator[Violation]:
    if not name:
        yield Violation("/name", FaultCode.EMPTY_NAME, "the token's name is empty", "name the token")
    elif len(name) > LONGEST_NAME:
        message = f"the token's name has {len(name)} characters, at most {LONGEST_NAME} are allowed"
        yield Violation("/name", FaultCode.NAME_TOO_LONG, message, "choose a shorter name")
    elif not _NAME.fullmatch(name):
        message = f"{name!r} cannot be a token's name"
        fix = "use letters, digits and . _ @ -, beginning with a letter or digit"
        yield Violation("/name", FaultCode.ILLEGAL_NAME, message, fix)


def _expiry(text: str, now: datetime) -> datetime:
    """Return when a token expires: the duration ``text`` after ``now``, or the time ``text``. Raise ``ValueError`` with
    the fix if it is neither, or is past.
    """
    fix = "write 90d, 12h, 2027-01-31 (when that day begins, UTC) or 2027-01-31T18:00:00Z, in the future"
    try:
        expires_at = _instant(text) if re.match("[0-9]+-", text) else now + duration(text)
    except (ValueError, OverflowError):
        raise ValueError(fix) from None
    if expires_at <= now:
        raise ValueError(fix)
    return expires_at


def _instant(text: str) -> datetime:
    read = datetime.fromisoformat(text)
    if len(text) == len("2027-01-31"):
        return read.replace(tzinfo=UTC)
    if read.tzinfo is None:
        raise ValueError("it has no offset")
    return read.astimezone(UTC)


def audit_members(token: ApiToken) -> dict[str, object]:
    """Return the members of the audit line for a token that was created."""
    expires = None if token.expires_at is None else token.expires_at.isoformat()
    signs = {"webhook": True} if token.secret is not None else {}
    return {"name": token.name, "role": token.role, "on": token.scope.patterns, "expires": expires, **signs}


def list_tokens(repository: Repository, request: PageRequest) -> Page[ApiToken]:
    """Return a page of the tokens in name order, expired ones too."""
    listed = repository.tokens.page(after=request.after, limit=request.and_one_more)
    return page_of(listed, request, lambda token: token.name)
