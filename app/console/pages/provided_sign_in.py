"""Sign-in at the identity provider: by authorization code with PKCE (RFC 7636), and back (decision 55)."""

from __future__ import annotations

import hmac
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from starlette.responses import Response

from app.console.pages.sign_in import SIGN_IN, onward_of
from app.console.site.cookies import cookie_name, set_cookie
from app.console.site.gate import SIGN_IN_PATH
from app.console.site.visits import Page, Visit
from app.core.errors import FaultCode, KeyfoldError, NotFound, Unauthorized, Violation
from app.http.callers import address_of, count_failure, count_request
from app.http.kinds import status_of
from app.http.members import OPERATION, REFUSAL
from app.services.access.sessions import LONGEST_PROVIDED, begin_provided_session

if TYPE_CHECKING:
    from app.services.access.identities import Identities, Login

GO_PATH: Final = f"{SIGN_IN_PATH}/provider"
BACK_PATH: Final = f"{SIGN_IN_PATH}/back"
_LOGIN_SECONDS: Final = 600
_PART = r"[\w-]{43}"
_KEPT: Final = re.compile(rf"({_PART})\.({_PART})\.({_PART})\.([^\s;,]*)")


def go_to_provider(visit: Visit) -> Response:
    """Begin a login. The browser keeps what ends it, in a cookie that it sends when the provider leads it back."""
    from app.services.access.identities import Login  # noqa: PLC0415  # few services need it

    identities, login = _identities(visit), Login.new()
    response = visit.go(identities.sign_in_address(_back(visit), login))
    cookie_value = f"{login.state}.{login.nonce}.{login.verifier}.{quote(onward_of(visit.param('next')), safe='')}"
    secure = visit.request.url.scheme == "https"
    # Lax: a page of the provider leads back here, and a strict cookie would not come along.
    response.set_cookie(
        _cookie(visit), cookie_value, max_age=_LOGIN_SECONDS, path="/", secure=secure, httponly=True, samesite="lax"
    )
    return response


def come_back(visit: Visit) -> Response:
    """End a login that this browser began. Raise ``TooMany`` for another address that guesses."""
    identities, cookie = _identities(visit), _KEPT.fullmatch(visit.request.cookies.get(_cookie(visit), ""))
    try:
        login, onward = _begun(visit, cookie)
        grant = identities.signed_in(visit.param("code"), _back(visit), login)
        count_request(visit.parts.rates.requests, grant)
        session = begin_provided_session(visit.parts.database, grant)
    except KeyfoldError as error:
        if isinstance(error, Unauthorized):
            count_failure(visit.parts.rates.failures, address_of(visit.request.scope), error)
        visit.request.scope[REFUSAL] = error.with_traceback(None)
        visit.request.scope[OPERATION] = SIGN_IN
        response = visit.page("pages/sign_in.html", status_of(error), onward="/", error=error)
    else:
        replace(visit, grant=grant).note(SIGN_IN)
        response = visit.page("parts/once_more.html", path=onward)  # its own visit: else a strict cookie stays away
        set_cookie(visit.request, response, session.secret, LONGEST_PROVIDED)
    response.delete_cookie(_cookie(visit), path="/", secure=visit.request.url.scheme == "https", httponly=True)
    return response


def _begun(visit: Visit, cookie: re.Match[str] | None) -> tuple[Login, str]:
    """Return the login that the browser began, and where it goes on. Raise ``Unauthorized`` for another one."""
    from app.services.access.identities import Login  # noqa: PLC0415  # few services need it

    if cookie is None or not hmac.compare_digest(cookie[1].encode(), visit.param("state").encode()):
        raise _not_begun("this browser did not begin the sign-in, or it took longer than ten minutes")
    if visit.param("error"):
        raise _not_begun(f"the provider says {visit.param('error')[:100]!r}")
    return Login(cookie[1], cookie[2], cookie[3]), onward_of(unquote(cookie[4]))


def _not_begun(message: str) -> Unauthorized:
    return Unauthorized(message, violations=[Violation("", FaultCode.UNKNOWN_TOKEN, message, "sign in once more")])


def _identities(visit: Visit) -> Identities:
    """Raise ``NotFound`` if there is no provider."""
    provider = visit.parts.gate.identities
    if provider is None:
        raise NotFound("this service has no identity provider (KEYFOLD_OIDC_ISSUER)")
    return provider


def _back(visit: Visit) -> str:
    return f"{str(visit.request.base_url).rstrip('/')}{BACK_PATH}"


def _cookie(visit: Visit) -> str:
    return f"{cookie_name(visit.request)}_login"


PAGES: Final = (
    Page("GET", GO_PATH, go_to_provider, None, whole=False),
    Page("GET", BACK_PATH, come_back, None, whole=False),
)
