"""The gate: validates the API token of every request, and returns the caller's grant."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anyio import CapacityLimiter

from app.catalog.database import CatalogDatabase
from app.catalog.repository import ApiToken
from app.catalog.shared.marks import TOKENS
from app.core.access import EVERYBODY, Grant
from app.core.errors import FaultCode, KeyfoldError, Resource, Unauthorized, Violation
from app.services.access.token_uses import TokenUses
from app.services.access.tokens import token_digest
from app.services.access.webhooks import Signed, refused

if TYPE_CHECKING:
    from app.services.access.identities import Identities  # it takes long to load, and few services need it

_REFRESH_SECONDS: Final = 2.0
_NEW_TOKEN_SECONDS: Final = 0.1
_FAILED_SECONDS: Final = 1.0
# A signed JWT has two dots, between header, claims and signature. Tokens of Keyfold have none.
_DOTS: Final = 2
_MAKE = "make one with: keyfold token create NAME"


@dataclass(frozen=True)
class _Failure:
    """The catalog could not be read at ``failed_at`` (seconds of the gate's clock)."""

    error: KeyfoldError
    failed_at: float


@dataclass(frozen=True)
class _Known:
    """A token of the catalog: its digest, its grant, and its expiry (seconds since 1970-01-01 UTC)."""

    digest: str
    grant: Grant
    expires: float
    secret: str | None = field(default=None, repr=False)

    @classmethod
    def from_token(cls, digest: str, token: ApiToken) -> _Known:
        """Return the cache entry of ``token``."""
        expires = float("inf") if token.expires_at is None else token.expires_at.timestamp()
        return cls(digest, token.grant, expires, token.secret)


@dataclass(frozen=True)
class _Access:
    """The tokens of the catalog at ``read_at`` (seconds of the gate's clock), and their mark before that."""

    required: bool = True
    tokens: Mapping[str, _Known] = field(default_factory=dict)
    read_at: float = float("-inf")
    mark: int = 0

    def known(self, digest: str | None) -> _Known | None:
        """Return the token with this digest.

        It is found by its digest, and only then compared in constant time. How long the search takes can show no more
        than a digest that its sender knows already.
        """
        token = None if digest is None else self.tokens.get(digest)
        return token if token is not None and hmac.compare_digest(token.digest, digest or "") else None


class TokenGate:
    """Authorizes requests. Until the first token is made every request passes, unless ``required``; afterwards each
    needs a known token.

    The tokens are cached until their mark changes (docs/decisions/0018), so revoking a token takes effect with its
    commit on this machine, and with a notification on others. Changes without a mark are seen after two seconds at
    most. An unknown token makes the gate read the catalog sooner, at most ten times a second. A failure to read the
    catalog is cached for a second, so that queued requests do not wait for it one after another.

    With ``identities``, a JWT is a token of their provider. ``uses`` records the use of every other token. ``clock``
    returns monotonic seconds; ``now`` returns seconds since 1970-01-01 UTC, by which tokens expire.
    """

    def __init__(
        self,
        database: CatalogDatabase,
        *,
        required: bool,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        uses: TokenUses | None = None,
        identities: Identities | None = None,
    ) -> None:
        self._database = database
        self._required = required
        self._clock = clock
        self._now = now
        self._uses = uses
        self.identities = identities
        self._lock = threading.Lock()
        self._access = _Access()
        self._failure: _Failure | None = None

    def check(self, authorization: str | None) -> Grant:
        """Return the grant of the token in the header; ``EVERYBODY`` if none is needed. Raise ``Unauthorized``."""
        if theirs := self._of_provider(authorization):
            identities, token = theirs
            return identities.check(token)
        digest = _digest(authorization)
        access = self._read(_REFRESH_SECONDS)
        if digest is not None and access.required and access.known(digest) is None:
            access = self._read(_NEW_TOKEN_SECONDS)
        grant = self._granted(access, digest)
        if grant is None:
            raise self._refused(access, digest)
        return grant

    def recall(self, authorization: str | None) -> Grant | None:
        """Return the result of ``check`` if it is cached and lets the request pass; else None."""
        if theirs := self._of_provider(authorization):
            identities, token = theirs
            return identities.recall(token)
        access = self._access
        return None if self._older(access, _REFRESH_SECONDS) else self._granted(access, _digest(authorization))

    def turns_of(self, authorization: str | None) -> CapacityLimiter | None:
        """Return the limiter for a ``check`` that does not read the catalog, such as of a JWT; None for others."""
        theirs = self._of_provider(authorization)
        return None if theirs is None else theirs[0].turns

    def _of_provider(self, authorization: str | None) -> tuple[Identities, str] | None:
        """Return the identity provider and the token that it signed; None for any other token."""
        token = bearer(authorization)
        theirs = token is not None and token.count(".") == _DOTS
        return (self.identities, token) if self.identities is not None and token is not None and theirs else None

    def is_open(self) -> bool:
        """Return whether no token is needed. Raise as ``check`` does."""
        return not self._read(_REFRESH_SECONDS).required

    def check_signed(self, signed: Signed, body: bytes) -> Grant:
        """Return the grant of the token that signed the request. Raise ``Unauthorized``."""
        for most_seconds in (_REFRESH_SECONDS, _NEW_TOKEN_SECONDS):
            access = self._read(most_seconds)
            known = access.tokens.values()
            signer = next(
                (token for token in known if token.secret is not None and signed.is_by(token.secret, body)), None
            )
            if signer is not None:
                grant = self._granted(access, signer.digest)
                if grant is None:
                    raise self._refused(access, signer.digest)
                return grant
        raise refused("no token has made the signature of the request", f"{_MAKE} --webhook")

    def lasts(self, authorization: str | None, most: float) -> float:
        """Return the remaining lifetime in seconds of a token that was just let in, at most ``most``."""
        if theirs := self._of_provider(authorization):
            identities, token = theirs
            return identities.lasts(token, most)
        known = self._access.known(_digest(authorization))
        return most if known is None else max(0.0, min(most, known.expires - self._now()))

    def _granted(self, access: _Access, digest: str | None) -> Grant | None:
        if not access.required:
            return EVERYBODY
        known, now = access.known(digest), self._now()
        if known is None or now >= known.expires:
            return None
        if self._uses is not None:
            self._uses.note(known.grant.name, now)
        return known.grant

    def _refused(self, access: _Access, digest: str | None) -> Unauthorized:
        expired = access.known(digest)
        if expired is not None:
            wrong = f"the token {expired.grant.name!r} has expired"
            fix = f"send another one, {_MAKE}"
            return Unauthorized(
                wrong,
                violations=[Violation("", FaultCode.EXPIRED_TOKEN, wrong, fix)],
                resource_type=Resource.TOKEN,
                resource_name=expired.grant.name,
            )
        if all(self._now() >= known.expires for known in access.tokens.values()):
            message = f"this service needs a token, and has no valid one left; {_MAKE}"
            return Unauthorized(message, violations=[Violation("", FaultCode.NO_TOKEN_LEFT, message, _MAKE)])
        return _unknown(digest)

    def _older(self, access: _Access, seconds: float) -> bool:
        return self._clock() - access.read_at > seconds or access.mark != self._database.marks.mark(TOKENS)

    def _read(self, most_seconds: float) -> _Access:
        with self._lock:
            if self._older(self._access, most_seconds):
                self._raise_known_failure()
                self._access = self._ask()
            return self._access

    def _raise_known_failure(self) -> None:
        failure = self._failure
        if failure is not None and self._clock() - failure.failed_at <= _FAILED_SECONDS:
            raise failure.error.with_traceback(None)  # else it would grow with each request that gets it

    def _ask(self) -> _Access:
        read_at, mark = self._clock(), self._database.marks.mark(TOKENS)
        try:
            with self._database.reading() as repository:
                required = self._required or repository.tokens.required()
                by_digest = repository.tokens.by_digest()
                tokens = {digest: _Known.from_token(digest, token) for digest, token in by_digest.items()}
                return _Access(required, tokens, read_at, mark)
        except KeyfoldError as error:
            self._failure = _Failure(error, self._clock())
            raise


def bearer(authorization: str | None) -> str | None:
    """Return the token of the header; None if there is none."""
    scheme, _, token = (authorization or "").partition(" ")
    # Debezium's HTTP sink, with authentication.type=jwt, sends "Bearer: …".
    return (token.strip() or None) if scheme.lower().removesuffix(":") == "bearer" else None


def _digest(authorization: str | None) -> str | None:
    token = bearer(authorization)
    return None if token is None else token_digest(token)


def _unknown(digest: str | None) -> Unauthorized:
    message = f"send a valid token: Authorization: Bearer kf_… ({_MAKE})"
    code = FaultCode.MISSING_TOKEN if digest is None else FaultCode.UNKNOWN_TOKEN
    wrong = "the request has no bearer token" if digest is None else "the token is not known, or was revoked"
    return Unauthorized(message, violations=[Violation("", code, wrong, f"send Authorization: Bearer kf_…; {_MAKE}")])
