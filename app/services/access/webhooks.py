"""Requests signed as in Standard Webhooks: HMAC-SHA256 of id, time and body, by a secret that both sides know.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from app.core.errors import FaultCode, Unauthorized, Violation

PREFIX: Final = "whsec_"
# A request is valid for this long, and the clocks may differ as much.
TOLERANCE_SECONDS: Final = 300
_SECRET_BYTES: Final = 32
_VERSION: Final = "v1,"
_SECONDS: Final = re.compile(r"[0-9]{1,15}")


def new_secret() -> str:
    """Return a new random secret for a sender, in the form that its settings take."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


@dataclass(frozen=True)
class Signed:
    """The signature headers of a request: its ``id``, the ``time`` in seconds since 1970-01-01 UTC, and signatures, of
    which one must be right.
    """

    id: str
    time: str
    signatures: str

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self | None:
        """Return the signature headers; None if the request has none."""
        signatures = headers.get("webhook-signature")
        if signatures is None:
            return None
        return cls(headers.get("webhook-id", ""), headers.get("webhook-timestamp", ""), signatures)

    def check(self, now: float) -> None:
        """Raise ``Unauthorized`` for a request without an id, or one too old to be distinguished from a replay."""
        if not self.id:
            raise refused("webhook-id is missing", "send webhook-id, webhook-timestamp and webhook-signature")
        if not _SECONDS.fullmatch(self.time) or abs(int(self.time) - now) > TOLERANCE_SECONDS:
            message = f"webhook-timestamp is not within {TOLERANCE_SECONDS} seconds of this machine's clock"
            raise refused(message, "send seconds since 1970-01-01 UTC, and set the clocks of both machines")

    def is_by(self, secret: str, body: bytes) -> bool:
        """Return whether one of the signatures was made with the ``secret``."""
        digest = hmac.new(_key(secret), f"{self.id}.{self.time}.".encode("latin-1"), hashlib.sha256)
        digest.update(body)
        right = digest.digest()
        return any(hmac.compare_digest(right, sent) for sent in self._sent())

    def _sent(self) -> list[bytes]:
        decoded = []
        for text in self.signatures.split()[:_MOST_SIGNATURES]:
            if text.startswith(_VERSION):
                try:
                    decoded.append(base64.b64decode(text.removeprefix(_VERSION), validate=True))
                except (binascii.Error, ValueError):
                    continue
        return decoded


_MOST_SIGNATURES: Final = 10  # a sender that changes its secret sends two


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(PREFIX))


def refused(message: str, fix: str) -> Unauthorized:
    """Return the failure of a request whose signature is not valid."""
    return Unauthorized(message, violations=[Violation("", FaultCode.WRONG_SIGNATURE, message, fix)])
