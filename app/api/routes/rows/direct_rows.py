"""Lookups answered before the router: the operation ``GET T/rows``, without FastAPI's cost (docs/decisions/0018)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_plus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.middleware.negotiation import takes_json
from app.api.middleware.observed import ANSWER
from app.api.routes.rows.lookups import Lookup, answer_row, names_in
from app.api.shared.deps import GRANT
from app.api.shared.outgoing import Outgoing
from app.api.shared.paths import DATABASES_PATH
from app.api.shared.preferences import INTEGERS, USUAL, Spelling, spelling
from app.api.shared.problems import refusal
from app.core.access import Grant, Role
from app.core.errors import KeyfoldError
from app.core.table.options.entries import Integers
from app.core.table.upkeep.damage import DamagedFile
from app.http.members import OPERATION
from app.services.rows.lookups import Consistency

# Names that need no decoding; paths with other names go to the documented route.
_ROWS = re.compile(rf"{DATABASES_PATH}/([A-Za-z0-9_.-]+)/tables/([A-Za-z0-9_.-]+)/rows(?:/(.+))?".encode())
_CONSISTENCIES: Final[Mapping[str, Consistency]] = {consistency.value: consistency for consistency in Consistency}
EXPLAIN: Final = ":explain"  # another route: a key that ends so needs ?key=
_BODY = (b"content-length", b"transfer-encoding")


class DirectRows:
    """Answers ordinary lookups. Those with unusual parameters are left to the documented route, which also reports
    their faults; both call ``answer_row``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        lookup = _lookup(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if lookup is None:
            await self.app(scope, receive, send)
            return
        try:
            grant: Grant = scope[GRANT]
            grant.check_table(Role.READ, *lookup.name)  # nothing else checks it on this path
            answer = await answer_row(scope["app"].state.parts, lookup, scope, _if_none_match(scope))
        except DamagedFile as error:
            response = await run_in_threadpool(refusal, Request(scope), error)
            await response(scope, receive, send)
            return
        except KeyfoldError as error:
            await refusal(Request(scope), error)(scope, receive, send)
            return
        outgoing: Outgoing = scope[ANSWER]
        await outgoing.send_whole(answer.status, answer.headers, answer.body)


def _lookup(scope: Scope) -> Lookup | None:
    """Return an ordinary lookup, and note its operation in the scope; None for any other request."""
    match = _ROWS.fullmatch(scope.get("raw_path") or b"")
    if match is None or not all(_is_ordinary(name, value) for name, value in scope["headers"]):
        return None
    database, table, raw_key = match.groups()
    if raw_key is not None and scope["path"].endswith(EXPLAIN):
        return None
    given = _parameters(scope["query_string"])
    if given is None or bool(given.keys) is (raw_key is not None):
        return None
    keys = given.keys if raw_key is None else [scope["path"][match.start(3) :]]
    scope[OPERATION] = "getRow" if raw_key is None else "getRowByPath"
    return Lookup(
        (database.decode(), table.decode()), keys, given.columns, given.consistency, spelling=_spelling(scope, given)
    )


def _is_ordinary(name: bytes, value: bytes) -> bool:
    return name not in _BODY and (name != b"accept" or takes_json(value))


@dataclass
class _Parameters:
    """The parameters of an ordinary lookup."""

    keys: list[str] = field(default_factory=list)
    columns: list[str] | None = None
    consistency: Consistency | None = None
    integers: Integers | None = None


def _spelling(scope: Scope, given: _Parameters) -> Spelling:
    lines = [value for name, value in scope["headers"] if name == b"prefer"]
    if not lines and given.integers is None:
        return USUAL
    return spelling(given.integers, b",".join(lines).decode("latin-1"))


def _parameters(query: bytes) -> _Parameters | None:
    """Return the parameters of the query string, read as Starlette reads it; None if one is unknown or given twice."""
    given = _Parameters()
    for pair in query.decode("latin-1").split("&") if query else ():
        name, _, value = pair.partition("=")
        if name == "key":
            given.keys.append(unquote_plus(value))
        elif name == "columns" and given.columns is None:
            given.columns = names_in(unquote_plus(value))
        elif name == "consistency" and given.consistency is None and value in _CONSISTENCIES:
            given.consistency = _CONSISTENCIES[value]
        elif name == "integers" and given.integers is None and value in INTEGERS:
            given.integers = INTEGERS[value]
        else:
            return None
    return given


def _if_none_match(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"if-none-match"), None)
