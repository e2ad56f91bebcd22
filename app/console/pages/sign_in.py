"""Sign-in with a token, and sign-out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.responses import Response

from app.console.site.cookies import new_visitor, session_of, set_cookie
from app.console.site.gate import SIGN_IN_PATH, is_page
from app.console.site.visits import Page, Visit
from app.core.access import EVERYBODY, Role
from app.core.errors import Unauthorized
from app.http.callers import address_of, count_failure, count_request
from app.http.members import OPERATION, REFUSAL
from app.services.access.sessions import LONGEST, begin_session, end_session, unknown_token

SIGN_IN: Final = "signIn"  # the operation in the audit log
SIGN_OUT_PATH: Final = "/console/sign-out"


def show_sign_in(visit: Visit) -> Response:
    """Ask for a token; visitors who need none continue at once."""
    onward = onward_of(visit.param("next"))
    if visit.grant is EVERYBODY or visit.grant.name:
        return visit.go(onward)
    return visit.page("pages/sign_in.html", onward=onward, error=None)


def sign_in(visit: Visit) -> Response:
    """Begin a session. Raise ``TooMany`` for another address that guesses, ``Unavailable``."""
    onward = onward_of(visit.form.get("next", ""))
    if visit.grant is EVERYBODY:
        return visit.go(onward)
    token, parts = visit.form.get("token", "").strip(), visit.parts
    try:
        grant = parts.gate.check(f"Bearer {token}")  # a wrong guess does not reach the catalog
        count_request(parts.rates.requests, grant)
        session = begin_session(parts.database, token)
    except Unauthorized as error:
        count_failure(parts.rates.failures, address_of(visit.request.scope), error)
        visit.request.scope[REFUSAL] = error.with_traceback(None)
        visit.request.scope[OPERATION] = SIGN_IN
        return visit.page(
            "pages/sign_in.html",
            401,
            onward=onward,
            error=unknown_token(),
            provider=visit.parts.gate.identities is not None,
        )
    _end_session(visit)
    replace(visit, grant=session.grant).note(SIGN_IN)
    response = visit.go(onward)
    set_cookie(visit.request, response, session.secret, LONGEST)
    return response


def sign_out(visit: Visit) -> Response:
    """End the session: its cookie opens nothing any more, even if it was kept."""
    _end_session(visit)
    response = visit.go(SIGN_IN_PATH)
    set_cookie(visit.request, response, new_visitor())
    return response


def _end_session(visit: Visit) -> None:
    session = session_of(visit.cookie)
    if session is not None:
        end_session(visit.parts.database, session)


def onward_of(path: str) -> str:
    """Return where to go afterwards: a page of the console, wherever the link came from."""
    known = is_page(path.partition("?")[0]) and "\\" not in path and not path.startswith(("//", SIGN_IN_PATH))
    return path if known and path.isprintable() else "/"


PAGES: Final = (
    Page("GET", SIGN_IN_PATH, show_sign_in, None),
    Page("POST", SIGN_IN_PATH, sign_in, None),
    Page("POST", SIGN_OUT_PATH, sign_out, Role.READ),
)
