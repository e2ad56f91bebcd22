"""Callers with tokens of an identity provider: JWTs of OpenID Connect, and the grants for their
claims (decision 55).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import anyio
import httpx
import jwt
from cachetools import TTLCache

from app.core.access import ClaimRule, Grant
from app.core.errors import FaultCode, Forbidden, Unauthorized, Unavailable, Violation
from app.services.access.tokens import token_digest

# Signatures of a key pair alone: with HS256 the verifier could also sign, and a public key would be a password.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
NAME_PREFIX: Final = "oidc:"
# Keys of the provider are cached for this long.
_KEYS_SECONDS: Final = 300.0
# Time between two fetches for unknown key ids.
_UNKNOWN_KEY_SECONDS: Final = 10.0
_FAILED_SECONDS: Final = 5.0
# A verified token is cached for this long: its key may be revoked in between.
_VERIFIED_SECONDS: Final = 60.0
_MOST_VERIFIED: Final = 10_000
_TIMEOUT_SECONDS: Final = 5.0
# Allowed difference of the clocks.
_LEEWAY_SECONDS: Final = 10
_LONGEST: Final = 16_384  # characters of a token; a header holds no more
# Longest subject (OpenID Connect Core, 2).
_LONGEST_NAME: Final = 255
Claims = Mapping[str, Any]
Verified = tuple[Grant, float]


@dataclass(frozen=True)
class Login:
    """The values that a browser keeps until the provider redirects it back: only that browser can complete its login
    (RFC 7636, and OpenID Connect Core, 3.1.2.1).
    """

    state: str
    nonce: str
    verifier: str = field(repr=False)

    @classmethod
    def new(cls) -> Login:
        """Return random values that cannot be guessed."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))


class Identities:
    """Validates tokens of ``issuer`` for ``audience``; the first of ``rules`` that matches decides the grant.

    Only keys are fetched from the provider; tokens are validated locally. ``turns`` limits this to one thread, so that
    a provider that does not answer blocks no other. ``clock`` returns monotonic seconds, ``now`` seconds since
    1970-01-01 UTC.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        rules: Sequence[ClaimRule],
        client_secret: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.turns = anyio.CapacityLimiter(1)
        self._issuer, self._audience, self._rules = issuer, audience, tuple(rules)
        # As RFC 6749, 2.3.1 has it: both are encoded before they are joined.
        self._auth = None if client_secret is None else (quote_plus(audience), quote_plus(client_secret))
        self._clock, self._now = clock, now
        self._lock = threading.Lock()
        self._verified: TTLCache[str, Verified] = TTLCache(_MOST_VERIFIED, _VERIFIED_SECONDS, timer=clock)
        self._document: Mapping[str, Any] | None = None
        self._client: jwt.PyJWKClient | None = None
        self._fetched_at = self._failed_at = float("-inf")

    def recall(self, token: str) -> Grant | None:
        """Return the grant of a token that was verified recently; None for any other."""
        known = self._known(token)
        return None if known is None else known[0]

    def lasts(self, token: str, most: float) -> float:
        """Return the remaining lifetime in seconds of a token that was just validated, at most ``most``."""
        known = self._known(token)
        return most if known is None else max(0.0, min(most, known[1] - self._now()))

    def check(self, token: str) -> Grant:
        """Return the grant of the token. Raise ``Unauthorized`` if it is not valid, ``Forbidden`` if it meets no rule,
        and ``Unavailable`` if the provider's keys cannot be fetched.
        """
        recalled = self.recall(token)
        if recalled is not None:
            return recalled
        claims = self._claims(token)
        grant = self._grant(claims)
        with self._lock:
            self._verified[token_digest(token)] = grant, float(claims["exp"])
        return grant

    def _grant(self, claims: Claims) -> Grant:
        rule = next((claim_rule for claim_rule in self._rules if claim_rule.meets(claims)), None)
        if rule is None:
            raise _no_rule()
        # A tilde separates the names of sessions; a subject with one could look like another session.
        subject = claims["sub"].replace("%", "%25").replace("~", "%7E")
        return Grant(f"{NAME_PREFIX}{subject}", rule.role, rule.scope)

    def _known(self, token: str) -> Verified | None:
        with self._lock:
            entry = self._verified.get(token_digest(token))
        return entry if entry is not None and self._now() < entry[1] else None

    def _claims(self, token: str) -> Claims:
        if len(token) > _LONGEST:
            raise _refused(FaultCode.UNKNOWN_TOKEN, "it is too long")
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            claims: Claims = jwt.decode(
                token,
                self._key(kid),
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise _refused(FaultCode.EXPIRED_TOKEN, "it has expired") from error
        except jwt.PyJWTError as error:
            raise _refused(FaultCode.UNKNOWN_TOKEN, str(error)) from error
        subject = claims["sub"]
        if not 0 < len(subject) <= _LONGEST_NAME or not subject.isprintable():
            raise _refused(FaultCode.UNKNOWN_TOKEN, f"its sub is not a text of 1 to {_LONGEST_NAME} characters")
        return claims

    def _key(self, kid: str | None) -> jwt.PyJWK:
        """Return the key that a token names. Raise ``InvalidTokenError`` for one that the provider does not have.

        A failure of the provider is cached for some seconds, so that queued requests do not each wait for it.
        """
        if self._clock() - self._failed_at < _FAILED_SECONDS and not self._knows_keys():
            raise self._unavailable(ValueError("it did not answer a moment ago; repeat the request"))
        try:
            client = self._keys()
            key = _key_of(client.get_jwk_set().keys, kid)
            if key is None and self._may_ask():
                key = _key_of(client.get_jwk_set(refresh=True).keys, kid)
        except (jwt.PyJWKClientError, jwt.PyJWKSetError, httpx.HTTPError, ValueError) as error:
            self._failed_at = self._clock()
            raise self._unavailable(error) from error
        if key is None:
            raise jwt.InvalidTokenError("the identity provider does not have the key that it names")
        return key

    def _knows_keys(self) -> bool:
        cache = None if self._client is None else self._client.jwk_set_cache
        return cache is not None and cache.get() is not None

    def _may_ask(self) -> bool:
        """Return whether keys may be fetched again because of an unknown key id: any caller can invent one."""
        now = self._clock()
        allowed = now - self._fetched_at >= _UNKNOWN_KEY_SECONDS
        self._fetched_at = now if allowed else self._fetched_at
        return allowed

    def _keys(self) -> jwt.PyJWKClient:
        if self._client is None:
            keys = self._address("jwks_uri")
            self._client = jwt.PyJWKClient(keys, lifespan=_KEYS_SECONDS, timeout=_TIMEOUT_SECONDS)
        return self._client

    def _address(self, member: str) -> str:
        """Return an address of the provider's discovery document. Raise ``ValueError``, and what httpx raises."""
        if self._document is None:
            place = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            document = httpx.get(place, timeout=_TIMEOUT_SECONDS).raise_for_status().json()
            if document.get("issuer") != self._issuer:
                raise ValueError(f"{place} is of another issuer: {str(document.get('issuer'))[:200]!r}")
            self._document = document
        address = str(self._document.get(member))
        if self._issuer.startswith("https:") and not address.startswith("https:"):
            raise ValueError(f"its {member} is not behind TLS")
        return address

    def sign_in_address(self, back: str, login: Login) -> str:
        """Return the address where a person signs in; the provider then redirects to ``back`` with a code.

        Raise ``Unavailable``.
        """
        challenge = base64.urlsafe_b64encode(hashlib.sha256(login.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._audience,
            "redirect_uri": back,
            "scope": "openid profile email",
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        try:
            address = self._address("authorization_endpoint")
        except (httpx.HTTPError, ValueError) as error:
            raise self._unavailable(error) from error
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    def signed_in(self, code: str, back: str, login: Login) -> Grant:
        """Return the grant of the person who signed in with ``code``.

        Raise as ``check`` does, and ``Unauthorized`` for a code that the provider did not give for this login.
        """
        body = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": self._audience}
        try:
            place = self._address("token_endpoint")
            body["code_verifier"] = login.verifier
            given = httpx.post(place, data=body, auth=self._auth, timeout=_TIMEOUT_SECONDS)
            if given.is_client_error:
                raise _refused(FaultCode.UNKNOWN_TOKEN, f"the provider refuses its code with {given.status_code}")
            token = given.raise_for_status().json().get("id_token")
        except (httpx.HTTPError, ValueError) as error:
            raise self._unavailable(error) from error
        claims = self._claims(str(token))
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), login.nonce.encode()):
            raise _refused(FaultCode.UNKNOWN_TOKEN, "it was made for another login")
        return self._grant(claims)

    def _unavailable(self, error: Exception) -> Unavailable:
        why = str(error).partition("\n")[0]
        return Unavailable(f"the identity provider {self._issuer} cannot be reached: {why}")


def _key_of(keys: Sequence[jwt.PyJWK], kid: str | None) -> jwt.PyJWK | None:
    """Return the key with this name; a token that names no key uses the only one."""
    fitting = [key for key in keys if key.public_key_use in (None, "sig") and (kid is None or key.key_id == kid)]
    return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None


def _refused(code: FaultCode, why: str) -> Unauthorized:
    message = f"the identity provider's token is not valid: {why}"
    return Unauthorized(message, violations=[Violation("", code, message, "sign in again and send the new token")])


def _no_rule() -> Forbidden:
    message = "the token is valid, but its claims match no entry of KEYFOLD_OIDC_GRANTS"
    fix = "have one added for a claim of this token, or use a token of another group"
    return Forbidden(message, violations=[Violation("", FaultCode.MISSING_ROLE, message, fix)])
