"""The one cookie of a browser, and the text that its forms must bring back (docs/decisions/0035)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_SESSION = re.compile(r"kf_session_[\w-]{43}")
_VISITOR = re.compile(r"visitor_[\w-]{43}")
_PURPOSE: Final = b"keyfold console form"


def cookie_name(request: Request) -> str:
    """Return the cookie's name. It contains the port, because two services on one machine share cookies. Under https
    its prefix makes the browser accept it only from this host (RFC 6265bis, 4.1.3.2).
    """
    if request.url.scheme == "https":
        return f"__Host-keyfold_{request.url.port or 443}"
    return f"keyfold_{request.url.port or 80}"


def sent_cookie(request: Request) -> str | None:
    """Return the text of the cookie; None for none, or for one that this service never set."""
    text = request.cookies.get(cookie_name(request), "")
    return text if _SESSION.fullmatch(text) or _VISITOR.fullmatch(text) else None


def session_of(cookie: str | None) -> str | None:
    """Return the secret of the session that the cookie holds."""
    return cookie if cookie is not None and _SESSION.fullmatch(cookie) else None


def new_visitor() -> str:
    """Return the cookie of a browser in which no one signed in: it proves that a form came from a page shown there."""
    return f"visitor_{secrets.token_urlsafe(32)}"


def set_cookie(request: Request, response: Response, text: str, longest: timedelta | None = None) -> None:
    """Give the browser the cookie, which no script can read and no other site can send; it ends with the browser, or
    after ``longest``.
    """
    response.set_cookie(
        cookie_name(request),
        text,
        max_age=None if longest is None else int(longest.total_seconds()),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def form_token(cookie: str) -> str:
    """Return the token that a page's form must send back. Only a program that knows the cookie can make it."""
    return hmac.new(cookie.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def is_form_token(cookie: str, brought: str) -> bool:
    """Return whether ``brought`` is the form token of this browser's cookie: the form is of a page shown to it."""
    return hmac.compare_digest(form_token(cookie).encode(), brought.encode("utf-8", "replace"))
