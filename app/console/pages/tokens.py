"""Tokens: listed, made, their text shown once, and revoked, by callers who may do everything."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from app.console.pages.operations import OPERATIONS_PATH
from app.console.site.visits import Page, Visit
from app.core.access import EVERYTHING, Role
from app.core.errors import AlreadyExists, Invalid
from app.http.kinds import status_of
from app.services.access.tokens import Wish, audit_members, list_tokens, make_token
from app.services.shared.pages import PageRequest

TOKENS_PATH: Final = f"{OPERATIONS_PATH}/tokens"
PAGE_TOKENS: Final = 100
_API_PATH: Final = "/v1/tokens"
_EMPTY: Final = {"name": "", "role": Role.READ.value, "on": EVERYTHING, "expires": ""}


def show_tokens(visit: Visit) -> Response:
    """Show all tokens, and a form for another one."""
    visit.grant.check_service(Role.ADMIN)
    return _page(visit, _EMPTY, None)


def create(visit: Visit) -> Response:
    """Make a token and show its text, this once; show the form with its faults if the request has some."""
    visit.grant.check_service(Role.ADMIN)
    form = {name: visit.form.get(name, "").strip() for name in _EMPTY}
    try:
        wish = _wish(form)
        with visit.parts.database.transaction() as repository:
            made = make_token(repository, wish)
    except (Invalid, AlreadyExists) as error:
        return _page(visit, form, error)
    visit.note("createToken", **audit_members(made.token))
    return visit.page("operations/token_made.html", made=made)


def revoke(visit: Visit) -> Response:
    """Revoke a token, and end its sessions."""
    visit.grant.check_service(Role.ADMIN)
    name = visit.form.get("name", "")
    with visit.parts.database.transaction() as repository:
        repository.tokens.revoke(name)
    visit.note("revokeToken", name=name)
    return visit.go(TOKENS_PATH)


def _wish(form: dict[str, str]) -> Wish:
    """Return the token that the form requests, with one pattern per line. Raise ``Invalid`` for an unknown role."""
    try:
        role = Role(form["role"])
    except ValueError as error:
        raise Invalid(f"choose a role: {', '.join(Role)}") from error
    patterns = [line.strip() for line in form["on"].splitlines() if line.strip()]
    return Wish(form["name"], role, patterns, form["expires"] or None)


def _page(visit: Visit, form: dict[str, Any], error: Invalid | AlreadyExists | None) -> Response:
    with visit.parts.database.reading() as repository:
        listed = list_tokens(repository, PageRequest(PAGE_TOKENS, visit.param("after") or None))
        required, now = repository.tokens.required(), repository.now()
    if error is None and not required:  # another role would leave no one to make the second one here
        form = {**form, "role": Role.ADMIN.value}
    body = {"name": form["name"] or "NAME", "role": form["role"], "on": [EVERYTHING]}
    return visit.page(
        "operations/tokens.html",
        200 if error is None else status_of(error),
        found=listed,
        required=required,
        now=now,
        form=form,
        error=error,
        made_by=visit.curl("POST", _API_PATH, body),
        revoked_by=visit.curl("DELETE", f"{_API_PATH}/NAME"),
    )


PAGES: Final = (
    Page("GET", TOKENS_PATH, show_tokens, Role.ADMIN),
    Page("POST", TOKENS_PATH, create, Role.ADMIN),
    Page("POST", f"{TOKENS_PATH}/revoke", revoke, Role.ADMIN),
)
