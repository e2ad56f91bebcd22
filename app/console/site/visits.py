"""A visit: one request of a person, the grant, and the page that answers it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from xxhash import xxh3_64_hexdigest

from app import __version__
from app.console.parts.curl import curl_of
from app.console.parts.references import REFERENCE_PATH, function_link, option_link
from app.console.parts.rule_lines import rule_lines
from app.console.parts.trails import trail
from app.console.parts.words import FILTERS
from app.console.site.assets import asset_url
from app.console.site.cookies import form_token
from app.core.access import EVERYBODY, Grant, Role
from app.core.errors import Forbidden
from app.http.callers import address_of
from app.http.parts import Parts
from app.services.bodies.sent_files import SentFile

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# ``same-origin``: with no-referrer a browser would say that a form of ours comes from nowhere (Origin: null).
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NOUNS: Final = ("database", "table")  # the names that a path may have, from the outer to the inner
SEEN: Final = "seen"  # the query parameter in which a fragment says what it shows now
_templates = Environment(
    loader=PackageLoader("app.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(FILTERS)
_templates.globals.update(asset=asset_url, version=__version__, Role=Role, rule_lines=rule_lines, trail=trail)
_templates.globals.update(option_link=option_link, function_link=function_link, reference_path=REFERENCE_PATH)


@dataclass(frozen=True)
class Visit:
    """One request of a person: who it is, the names in the path, and the fields and the file of the form that was
    sent.
    """

    request: Request
    grant: Grant
    cookie: str = field(repr=False)
    names: Mapping[str, str] = field(default_factory=dict)
    form: ImmutableMultiDict[str, str] = field(default_factory=ImmutableMultiDict)
    file: SentFile | None = None

    @property
    def parts(self) -> Parts:
        """The open parts of this process."""
        parts: Parts = self.request.app.state.parts
        return parts

    @property
    def form_token(self) -> str:
        """The token that every form of the page must send back."""
        return form_token(self.cookie)

    @property
    def signed_in(self) -> bool:
        """Whether somebody signed in, and may sign out."""
        return self.grant is not EVERYBODY

    @property
    def has_script(self) -> bool:
        """Whether the page's script asks, for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    def may(self, role: Role, *names: str) -> bool:
        """Return whether the visitor has ``role``, for the database or the table that ``names`` name."""
        try:
            check_names(self.grant, role, *names)
        except Forbidden:
            return False
        return True

    def may_all(self, role: Role) -> bool:
        """Return whether the visitor has ``role`` for the service itself."""
        return self.grant.scope.everything and self.grant.role.includes(role)

    def param(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.request.query_params.get(name, default)

    def curl(self, method: str, path: str, body: object = None, media_type: str = "application/json") -> str:
        """Return the command that asks the API for the same."""
        return curl_of(self.request, method, path, body, media_type, token=self.signed_in)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a whole page."""
        return HTMLResponse(self._rendered(template, values), status, headers=HEADERS)

    def fragment(self, template: str, **values: Any) -> Response:
        """Return a part of a page, with the ``digest`` of its content; 204 if the page has that already."""
        digest = self.digest(template, **values)
        if self.param(SEEN) == digest:
            return self.nothing_new()
        return HTMLResponse(self._rendered(template, {**values, "digest": digest}), headers=HEADERS)

    def nothing_new(self) -> Response:
        """Answer that the fragment has not changed."""
        return Response(status_code=204, headers=HEADERS)

    def digest(self, template: str, **values: Any) -> str:
        """Return the digest of a fragment with these values; the page compares it before it replaces the fragment."""
        return xxh3_64_hexdigest(self._rendered(template, {**values, "digest": ""}))

    def go(self, path: str) -> Response:
        """Redirect to another page, once a form has done what it should."""
        return RedirectResponse(path, 303, headers=HEADERS)

    def note(self, operation: str, **members: object) -> None:
        """Write the line of the audit log for a change that was made, as the API does for its changes."""
        if self.parts.audit is not None:
            who = {"token": self.grant.name or None, "address": address_of(self.request.scope)}
            self.parts.audit.write(**who, operation=operation, **members, outcome="done", status=200)

    def once(self, digest: str) -> str | None:
        """Return the Idempotency-Key of a form that has ``new_once`` in its field ``once``. ``digest`` is that of its
        values: a form that is sent twice counts once, one with other values counts separately.
        """
        once = self.form.get("once", "")
        return f"console-{once}-{digest}" if re.fullmatch(r"[\w-]{1,40}", once, re.ASCII) else None

    def _rendered(self, template: str, values: Mapping[str, Any]) -> bytes:
        """In UTF-8; half a surrogate pair, which JSON may bring and UTF-8 cannot carry, as JSON escapes it."""
        return _templates.get_template(template).render(visit=self, **values).encode("utf-8", "backslashreplace")


def new_once() -> str:
    """Return a random value that identifies one rendered form."""
    return secrets.token_urlsafe(12)


Shows = Callable[[Visit], Response]


@dataclass(frozen=True)
class Page:
    """One page, or one thing that a page can do: ``shows`` answers ``method`` of ``path``, in a thread.

    ``role`` is what the visitor needs, for the database and the table in the path if there are any; None: no one needs
    to have signed in. ``reads``: it changes nothing, although it is asked for with a form. ``whole``: not a part of a
    page, a file, or a step of signing in.
    """

    method: str
    path: str
    shows: Shows
    role: Role | None = Role.READ
    reads: bool = False
    whole: bool = True


def check_names(grant: Grant, role: Role, *names: str) -> None:
    """Raise ``Forbidden`` unless ``grant`` has ``role``: at all, for a part of a database, or for a table."""
    if len(names) == 2:
        grant.check_table(role, *names)
    elif names:
        grant.check_part(role, *names)
    else:
        grant.check_role(role)
