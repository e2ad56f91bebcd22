"""Sign-in for senders without a setting for a token: Debezium's login for a JWT, and OAuth2's client credentials, for
Iceberg's clients at their own path.

They get back the token that they sent, so revoking it ends all access.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final
from urllib.parse import parse_qs, unquote_plus

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from app.api.middleware.routing import Router
from app.api.routes.batches.batches import whole_body
from app.api.shared.deps import PartsDep
from app.core.access import EVERYBODY
from app.core.errors import FaultCode, Unauthorized, Violation
from app.http.browsers import Place, check_host
from app.http.callers import address_of, count_failure, granted
from app.http.iceberg_clients import ICEBERG_TOKENS
from app.http.parts import Parts
from app.services.access.sessions import check_no_session

router = Router()
_LONGEST_MINUTES: Final = 525_600  # a year: later it asks again
_DEFAULT_SECONDS: Final = 3600.0
_NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749 §5.1
_CREDENTIALS: Final = "client_credentials"
_BASIC: Final = "Keyfold"


class _Lasts(BaseModel):
    """The lifetime that a sender requests."""

    model_config = ConfigDict(extra="ignore")
    token_expiry_in_minutes: int = Field(60, ge=1, le=_LONGEST_MINUTES)
    refresh_token_expiry_in_minutes: int = Field(1440, ge=1, le=_LONGEST_MINUTES)


class Login(_Lasts):
    """Debezium's ``authentication.type=jwt``: the name of a token, and its text as password."""

    username: str
    password: str


class Renewal(_Lasts):
    """The renewal of a login, with its refresh token."""

    jwt_refresh_token: str


# Not in the OpenAPI document: the forms of these requests are Debezium's and RFC 6749's.
@router.post("/auth/authenticate", operation_id="signIn", include_in_schema=False)
async def sign_in(body: Login, request: Request, parts: PartsDep) -> JSONResponse:
    """Return the token of the password, as a JWT. Times are milliseconds, as Debezium's HTTP sink reads them."""
    return await _jwt(request, parts, body, body.password, body.username)


@router.post("/auth/refreshToken", operation_id="renewSignIn", include_in_schema=False)
async def renew(body: Renewal, request: Request, parts: PartsDep) -> JSONResponse:
    """Return the same token, if it is still valid."""
    return await _jwt(request, parts, body, body.jwt_refresh_token)


@router.post(ICEBERG_TOKENS, operation_id="getIcebergToken", include_in_schema=False)
@router.post("/auth/token", operation_id="getAccessToken", include_in_schema=False)
async def get_access_token(
    request: Request,
    parts: PartsDep,
    body: Annotated[bytes, Depends(whole_body)],
    authorization: Annotated[str | None, Header()] = None,
) -> JSONResponse:
    """Return the token of the client's secret (RFC 6749 §4.4), which is sent by Basic or in the form."""
    form = {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}
    if form.get("grant_type") != _CREDENTIALS:
        return _refused(400, "unsupported_grant_type", f"send grant_type={_CREDENTIALS}")
    name, secret = _basic(authorization) or (form.get("client_id", ""), form.get("client_secret", ""))
    if not name and not secret:
        why = "send client_id, the name of a token, and client_secret, its text"
        return _refused(400, "invalid_request", why)
    try:
        seconds = await _lasting(request, parts, secret, name, _DEFAULT_SECONDS)
    except Unauthorized as error:
        return _refused(401, "invalid_client", error.message)
    answer = {"access_token": secret, "token_type": "Bearer", "expires_in": int(seconds)}
    return JSONResponse(answer, headers=_NO_STORE)


async def _jwt(request: Request, parts: Parts, wish: _Lasts, secret: str, name: str | None = None) -> JSONResponse:
    """Return the JWT of a token. Raise ``Unauthorized`` if ``secret`` is no token, or not the one called ``name``."""
    seconds = await _lasting(request, parts, secret, name, wish.token_expiry_in_minutes * 60.0)
    longer = parts.gate.lasts(_bearer(secret), wish.refresh_token_expiry_in_minutes * 60.0)
    answer = {
        "jwt": secret,
        "jwt_refresh_token": secret,
        "expires_in": int(seconds * 1000),
        "refresh_token_expires_in": int(longer * 1000),
    }
    return JSONResponse(answer, headers=_NO_STORE)


async def _lasting(request: Request, parts: Parts, secret: str, name: str | None, most: float) -> float:
    """Return the remaining lifetime of the token ``secret`` in seconds, at most ``most``. Raise ``Unauthorized``,
    ``TooMany``.
    """
    try:
        check_no_session(_bearer(secret))
        grant = await granted(parts.gate, _bearer(secret))
        if grant is not EVERYBODY and name is not None and name != grant.name:
            message = f"the secret is not that of the token {name!r}"
            fix = "send the token's name, the NAME of: keyfold token create NAME"
            raise Unauthorized(message, violations=[Violation("", FaultCode.UNKNOWN_TOKEN, message, fix)])
    except Unauthorized as error:
        count_failure(parts.rates.failures, address_of(request.scope), error)
        raise
    if grant is EVERYBODY:
        check_host(request.headers, Place(parts.settings.host, (request.scope.get("server") or (None, None))[1]))
    return parts.gate.lasts(_bearer(secret), most)


def _bearer(secret: str) -> str:
    return f"Bearer {secret}"


def _basic(authorization: str | None) -> tuple[str, str] | None:
    """Return the client's name and secret of the Basic scheme (RFC 6749 §2.3.1); None if there are none."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return unquote_plus(name), unquote_plus(secret)


def _refused(status: int, error: str, why: str) -> JSONResponse:
    """Return a failure in the form of RFC 6749 §5.2."""
    challenge = {"WWW-Authenticate": f'Basic realm="{_BASIC}"'} if status == 401 else {}
    return JSONResponse({"error": error, "error_description": why}, status, _NO_STORE | challenge)
