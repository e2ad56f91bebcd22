"""API tokens: made once, kept as digests, checked on every request (design §7, promise 6)."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.catalog.database import CatalogDatabase
from app.catalog.marks import TOKENS
from app.core.errors import FaultCode, KeyfoldError, Unauthorized, Violation

PREFIX = "kf_"
_REFRESH_SECONDS: Final = 2.0
_NEW_TOKEN_SECONDS: Final = 0.1
_FAILED_SECONDS: Final = 1.0
_MAKE = "make one with: keyfold token create NAME"


def token_digest(token: str) -> str:
    """What the catalog keeps of a token. Tokens hold 256 random bits, so a plain digest cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(database: CatalogDatabase, name: str) -> str:
    """A new token, told only now; from the first on the service asks for one. Raises ``AlreadyExists`` when the name is
    taken.
    """
    token = PREFIX + secrets.token_urlsafe(32)
    with database.transaction() as repository:
        repository.tokens.add(name, token_digest(token))
    return token


@dataclass(frozen=True)
class _Failure:
    """That the catalog could not be read, known since ``failed_at`` (seconds of the gate's clock)."""

    error: KeyfoldError
    failed_at: float


@dataclass(frozen=True)
class _Access:
    """What the catalog said of tokens at ``read_at`` (seconds of the gate's clock), and their mark from before."""

    required: bool
    digests: frozenset[str]
    read_at: float
    mark: int = 0

    def admits(self, digest: str | None) -> bool:
        """Whether the bearer of ``digest`` may pass."""
        return not self.required or digest in self.digests


class TokenGate:
    """Lets requests in: all of them while no token was ever made and ``required`` is false, else only those with a
    known token.

    What the catalog says is remembered until the mark of the tokens changes (docs/decisions/0018), so a revoked token
    ends with its commit on this machine and a notification later on others; and for two seconds at most, for what no
    mark told of. A token that is not known makes the gate look sooner, but not more than ten times a second. That the
    catalog could not be read is remembered for a second: who waits behind a catalog that hangs does not wait for it
    again, one after another.

    ``clock`` tells seconds that never go back.
    """

    def __init__(
        self, database: CatalogDatabase, *, required: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._required = required
        self._clock = clock
        self._lock = threading.Lock()
        self._access = _Access(required=True, digests=frozenset(), read_at=float("-inf"))
        self._failure: _Failure | None = None

    def check(self, authorization: str | None) -> bool:
        """Whether the header carries a known token; false where none is needed. Raises ``Unauthorized`` elsewhere."""
        digest = _digest(authorization)
        access = self._read(_REFRESH_SECONDS)
        if digest is not None and not access.admits(digest):
            access = self._read(_NEW_TOKEN_SECONDS)
        if not access.admits(digest):
            raise _refused(access, digest)
        return access.required

    def recall(self, authorization: str | None) -> bool | None:
        """What ``check`` answers, if it is known without asking the catalog and lets the request pass; else None."""
        access = self._access
        known = not self._older(access, _REFRESH_SECONDS) and access.admits(_digest(authorization))
        return access.required if known else None

    def _older(self, access: _Access, seconds: float) -> bool:
        return self._clock() - access.read_at > seconds or access.mark != self._database.marks.of(TOKENS)

    def _read(self, most_seconds: float) -> _Access:
        with self._lock:
            if self._older(self._access, most_seconds):
                self._raise_known_failure()
                self._access = self._ask()
            return self._access

    def _raise_known_failure(self) -> None:
        failure = self._failure
        if failure is not None and self._clock() - failure.failed_at <= _FAILED_SECONDS:
            raise failure.error.with_traceback(None)  # else it would grow by each who is told

    def _ask(self) -> _Access:
        read_at, mark = self._clock(), self._database.marks.of(TOKENS)
        try:
            with self._database.reading() as repository:
                required = self._required or repository.tokens.required()
                return _Access(required, repository.tokens.digests(), read_at, mark)
        except KeyfoldError as error:
            self._failure = _Failure(error, self._clock())
            raise


def _digest(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token_digest(token.strip()) if scheme.lower() == "bearer" else None


def _refused(access: _Access, digest: str | None) -> Unauthorized:
    if not access.digests:
        message = f"this service asks for a token, and none is left; {_MAKE}"
        return Unauthorized(message, violations=[Violation("", FaultCode.NO_TOKEN_LEFT, message, _MAKE)])
    message = f"send a valid token: Authorization: Bearer kf_… ({_MAKE})"
    code = FaultCode.MISSING_TOKEN if digest is None else FaultCode.UNKNOWN_TOKEN
    wrong = "the request has no bearer token" if digest is None else "the token is not known, or was revoked"
    return Unauthorized(message, violations=[Violation("", code, wrong, f"send Authorization: Bearer kf_…; {_MAKE}")])
