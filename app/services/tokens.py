"""API tokens: made once, kept as digests, checked on every request (design §7, promise 6)."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from typing import Final

from app.catalog.database import CatalogDatabase
from app.core.errors import Unauthorized

PREFIX = "kf_"
_REFRESH_SECONDS: Final = 2.0


def token_digest(token: str) -> str:
    """What the catalog keeps of a token. Tokens hold 256 random bits, so a plain digest cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_token(database: CatalogDatabase, name: str) -> str:
    """A new token, told only now. Raises ``AlreadyExists`` when the name is taken."""
    token = PREFIX + secrets.token_urlsafe(32)
    with database.transaction() as repository:
        repository.add_token(name, token_digest(token))
    return token


class TokenGate:
    """Lets requests in: all of them while no token exists and ``required`` is false, else only those with a known
    token.

    What the catalog says is remembered for two seconds, so a revoked token ends within that time.
    """

    def __init__(self, database: CatalogDatabase, *, required: bool) -> None:
        self._database = database
        self._required = required
        self._lock = threading.Lock()
        self._closed = True
        self._known: set[str] = set()
        self._read_at = float("-inf")

    def check(self, authorization: str | None) -> None:
        """Raises ``Unauthorized`` unless the header carries a known token or none is needed."""
        scheme, _, token = (authorization or "").partition(" ")
        digest = token_digest(token.strip()) if scheme.lower() == "bearer" else None
        if self._is_closed() and not self._is_known(digest):
            raise Unauthorized(
                "send a valid token: Authorization: Bearer kf_… (make one with: keyfold token create NAME)"
            )

    def _is_closed(self) -> bool:
        with self._lock:
            if time.monotonic() - self._read_at > _REFRESH_SECONDS:
                with self._database.reading() as repository:
                    self._closed = self._required or repository.any_tokens()
                self._known.clear()
                self._read_at = time.monotonic()
            return self._closed

    def _is_known(self, digest: str | None) -> bool:
        if digest is None:
            return False
        if digest in self._known:
            return True
        with self._database.reading() as repository:
            known = repository.find_token(digest) is not None
        if known:
            with self._lock:
                self._known.add(digest)
        return known
