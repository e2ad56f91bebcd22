"""Failures over HTTP: one body for all (RFC 9457 with Paimon's members)."""

from __future__ import annotations

import json
import logging
import math
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import httpx
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from app.api.shared.methods import allowed_methods
from app.api.shared.paimon_clients import is_paimon, not_done
from app.core.errors import (
    ErrorCode,
    FaultCode,
    Invalid,
    KeyfoldError,
    Unavailable,
    UnsupportedMediaType,
    Violation,
    escape_pointer,
)
from app.core.table.upkeep.damage import DamagedFile
from app.http.iceberg_clients import error_member, is_icebergs, read_only
from app.http.kinds import status_of
from app.http.members import REFUSAL
from app.services.bodies.encodings import ENCODINGS
from app.services.bodies.formats import FORMATS, JSON
from app.services.bodies.json_bodies import NESTED_BOUND
from app.services.shared.damage import failure_of
from app.telemetry.logs import request_id

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# Refusals of Starlette and FastAPI themselves, before any code of ours runs.
_FRAMEWORK_CODES: Mapping[int, ErrorCode] = {
    401: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.ROUTE_NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    413: ErrorCode.PAYLOAD_TOO_LARGE,
    415: ErrorCode.UNSUPPORTED_MEDIA_TYPE,
    501: ErrorCode.NOT_IMPLEMENTED,
    503: ErrorCode.UNAVAILABLE,
}
_UNROUTED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    415: {"Accept": ", ".join(FORMATS), "Accept-Encoding": ", ".join(ENCODINGS)},
    503: {"Retry-After": "1"},
}
_HEADERS_OF: Mapping[ErrorCode, Mapping[str, str]] = {
    ErrorCode.REQUEST_IN_FLIGHT: {"Retry-After": "1"},
    ErrorCode.DAMAGED_FILE: {"Retry-After": "60"},  # a file is not restored within a second
}
# Pydantic's names of the faults that this service's parameters and bodies can have; a test walks them all.
READ_FAULTS: Mapping[str, FaultCode] = {
    code.value: code
    for code in (
        FaultCode.BOOL_PARSING,
        FaultCode.BOOL_TYPE,
        FaultCode.DICT_TYPE,
        FaultCode.ENUM,
        FaultCode.INT_PARSING,
        FaultCode.INT_PARSING_SIZE,
        FaultCode.INT_TYPE,
        FaultCode.LIST_TYPE,
        FaultCode.MODEL_ATTRIBUTES_TYPE,
        FaultCode.STRING_TYPE,
        FaultCode.TOO_LONG,
        FaultCode.TOO_SHORT,
        FaultCode.UNION_TAG_INVALID,
        FaultCode.UNION_TAG_NOT_FOUND,
    )
} | {"extra_forbidden": FaultCode.UNKNOWN_MEMBER}
_NO_NUMBER = ", unable to parse string as an integer"  # pydantic's ending of a message, which is no advice
# One answer names at most this many faults; a body of 1 MiB can have half a million.
MOST_FAULTS = 1000
_TOO_DEEP = Invalid(
    f"the body is nested too deeply: {NESTED_BOUND}",
    violations=[
        Violation(
            "", FaultCode.NESTED_TOO_DEEPLY, f"the body is nested too deeply: {NESTED_BOUND}", "nest fewer levels"
        )
    ],
)


class Fault(BaseModel):
    """One fault of a request: its place (a JSON pointer into the body), the message and the fix."""

    pointer: str
    code: FaultCode
    detail: str
    fix: str
    row: int | None = None
    column: str | None = None
    table: str | None = Field(None, description="where the request is for several")


class Problem(BaseModel):
    """The body of every response with a status of 400 or more: RFC 9457's members, Paimon's, and every single fault."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    type: str
    title: str
    status: int
    detail: str
    instance: str
    request_id: str = Field(description="The X-Request-Id of the answer, which every line of the log about it has.")
    message: str = Field(description="The same as detail, for Paimon's clients.")
    code: int = Field(description="The same as status, for Paimon's clients.")
    resource_type: str | None = Field(description="DATABASE, TABLE and so on; null where no resource is meant.")
    resource_name: str | None
    error_code: ErrorCode
    errors: list[Fault]
    error_count: int = Field(description="All faults, also those that errors leaves out.")


class ProblemResponse(JSONResponse):
    """A problem as its media type; lone surrogates, which UTF-8 cannot carry, are written as JSON escapes."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        """Return ``content`` as JSON."""
        return _JSON.encode(content).encode("utf-8", "backslashreplace")


def _reference(text: str) -> dict[str, Any]:
    return {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


# For ``responses=`` of a router. A ``model=`` would describe the body as application/json, which it is not.
# What any operation may answer by its parameters and its body, ``app.api.document.document`` adds.
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {"default": _reference("Any other failure")}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems of a route, for ``responses=``. The words are those of httpx: those of ``http.HTTPStatus``
    changed in Python 3.13, and the document is the same for every Python.
    """
    return {status: _reference(httpx.codes.get_reason_phrase(status)) for status in statuses}


def problem(request: Request, error: KeyfoldError, status: int, *, instance: str | None = None) -> ProblemResponse:
    """Return the response that reports ``error`` with ``status``."""
    # Without its traceback, whose frames have the scope: that would be a reference cycle.
    request.scope[REFUSAL] = error.with_traceback(None)
    content = {  # as ``Problem`` declares it, without its checks: pydantic refuses the lone surrogates of a message
        "type": f"urn:keyfold:problem:{error.code}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": int(status),
        "detail": error.message,
        "instance": instance or _path(request),
        "requestId": request_id() or "",
        "message": error.message,
        "code": int(status),
        "resourceType": error.resource_type,
        "resourceName": error.resource_name,
        "errorCode": error.code,
        "errors": [_fault(violation) for violation in error.violations[:MOST_FAULTS]],
        "errorCount": error.total_violations,
    }
    media_type = MEDIA_TYPE
    if is_icebergs(request.scope["path"]):  # its clients read the member in ``application/json`` alone
        content["error"], media_type = error_member(request.scope["path"], error, status), JSON
    headers = {"Cache-Control": "no-store", **_HEADERS.get(status, {}), **_HEADERS_OF.get(error.code, {})}
    if error.retry_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_seconds)))
    return ProblemResponse(content, status, headers=headers, media_type=media_type)


def _fault(violation: Violation) -> dict[str, Any]:
    """Return the members of ``Fault``, without those that are null."""
    members = {
        "pointer": violation.pointer,
        "code": violation.code,
        "detail": violation.message,
        "fix": violation.fix,
        "row": violation.row,
        "column": violation.column,
        "table": violation.table,
    }
    return {name: value for name, value in members.items() if value is not None}


def _path(request: Request) -> str:
    """Return the request's path as a URI reference."""
    raw: bytes | None = request.scope.get("raw_path")
    return quote(request.scope["path"] if raw is None else raw, safe="/%:+@!$&'()*,;=~")


def _keyfold_error(request: Request, error: Exception) -> ProblemResponse:
    """Answer a service's error. A damaged file is recorded in the catalog, so this does not run on the event loop."""
    assert isinstance(error, KeyfoldError)
    if isinstance(error, DamagedFile):
        error = failure_of(request.app.state.parts.database, error)
    status = status_of(error)
    return internal_error(request, error) if status == 500 else problem(request, error, status)


def refusal(request: Request, error: KeyfoldError) -> ProblemResponse:
    """Return the response that reports ``error``, for middleware that answers before the routes do."""
    return _keyfold_error(request, error)


def problem_text(request: Request, error: KeyfoldError) -> str:
    """Return the problem as JSON, for a response that has begun already."""
    return bytes(_keyfold_error(request, error).body).decode()


def _validation_error(request: Request, error: Exception) -> ProblemResponse:
    """Return the problem for a request that FastAPI could not read: invalid JSON, members of the body or query
    parameters.
    """
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):  # FastAPI leaves the body unread only for its media type
        return _not_json(request)
    reasons = error.errors()
    faults = [_read_fault(fault) for fault in reasons[:MOST_FAULTS]]
    message = faults[0].message if len(reasons) == 1 else f"the request has {len(reasons)} faults"
    refused = Invalid(message, violations=faults, total_violations=len(reasons))
    return problem(request, refused, HTTPStatus.BAD_REQUEST)


def _not_json(request: Request) -> ProblemResponse:
    sent = request.headers.get("content-type", "")
    message = f"the body is sent as {sent!r}; send JSON with the header Content-Type: application/json"
    return problem(request, UnsupportedMediaType(message), HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def _read_fault(fault: Mapping[str, Any]) -> Violation:
    source, *path = fault["loc"]
    if fault["type"] == "json_invalid":
        message = f"the body is not JSON: {fault['ctx']['error']} at character {path[0]}"
        return Violation("", FaultCode.JSON_INVALID, message, "send a JSON object")
    name = ".".join(str(segment) for segment in path) or "the body"
    where = name if source == "body" else f"{source} parameter {name}"
    if fault["type"] == "missing":
        return Violation(_pointer(source, path), FaultCode.MISSING, f"{where} is missing", f"send {where}")
    if fault["type"] == "extra_forbidden":
        return Violation(
            _pointer(source, path), FaultCode.UNKNOWN_MEMBER, f"the body has no member {name}", f"leave out {name}"
        )
    wrong = fault["msg"][:1].lower() + fault["msg"][1:]
    fix = (
        f"send a value that is {wrong.removeprefix('input should be ').removesuffix(_NO_NUMBER)}"
        if "should be" in wrong
        else "correct it"
    )
    return Violation(
        _pointer(source, path), READ_FAULTS.get(fault["type"], FaultCode.WRONG_TYPE), f"{where}: {wrong}", fix
    )


def _pointer(source: str, path: Sequence[str | int]) -> str:
    """Return a pointer into the body; empty for a fault elsewhere, whose message names the place."""
    return "".join(f"/{escape_pointer(str(segment))}" for segment in path) if source == "body" else ""


def _http_exception(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    # A path that others find has its methods. Only Paimon's clients learn there which of their calls are not done.
    if error.status_code in _UNROUTED and is_icebergs(request.scope["path"]) and request.method not in ("GET", "HEAD"):
        return _keyfold_error(request, read_only())
    explains = error.status_code == HTTPStatus.NOT_FOUND or is_paimon(request)
    if explains and error.status_code in _UNROUTED and (refused := not_done(request)) is not None:
        return _keyfold_error(request, refused)
    code = _FRAMEWORK_CODES.get(error.status_code, ErrorCode.INVALID_REQUEST)
    if error.status_code >= 500 and error.status_code not in _FRAMEWORK_CODES:
        return internal_error(request, error)
    response = problem(
        request, _unread(error) or KeyfoldError(_http_message(request, error), code=code), error.status_code
    )
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(allowed_methods(request))
    return response


def _unread(error: HTTPException) -> KeyfoldError | None:
    """Return why FastAPI could not read a body at all; None if it could."""
    if isinstance(error.__cause__, KeyfoldError):
        return error.__cause__
    if isinstance(error.__cause__, RecursionError):
        return _TOO_DEEP
    if isinstance(error.__cause__, UnicodeDecodeError):
        fault = Violation("", FaultCode.JSON_INVALID, "the body is not UTF-8", "send JSON in UTF-8")
    elif isinstance(error.__cause__, ValueError):  # Python's bound on the digits of an integer
        message = f"the body has a whole number of more than {sys.get_int_max_str_digits()} digits"
        fault = Violation("", FaultCode.INT_PARSING_SIZE, message, "send a number of fewer digits")
    else:
        return None
    return Invalid(fault.message, violations=[fault])


def _http_message(request: Request, error: HTTPException) -> str:
    if error.status_code == 404:
        return f"there is no route {_path(request)}"
    if error.status_code == 405:
        return f"{request.method} is not possible on {_path(request)}, only {', '.join(allowed_methods(request))}"
    return str(error.detail) or HTTPStatus(error.status_code).phrase


def _recursion_error(request: Request, error: Exception) -> ProblemResponse:
    log.warning("%s %s: %s", request.method, _path(request), error)  # the traceback has a thousand frames
    return problem(request, _TOO_DEEP, HTTPStatus.BAD_REQUEST)


def internal_error(request: Request, error: Exception) -> ProblemResponse:
    """Answer an unexpected error without its text, which may quote data, SQL or a password. The log has
    the error under the response's id. A disk error is named, since a retry may succeed.
    """
    number = uuid.uuid4()
    log.error("%s %s failed, id %s", request.method, _path(request), number, exc_info=error)
    if isinstance(error, OSError):
        why = error.strerror or type(error).__name__
        unavailable = Unavailable(f"a file of the service cannot be read or written now ({why}); retry later")
        return problem(request, unavailable, HTTPStatus.SERVICE_UNAVAILABLE, instance=number.urn)
    hidden = KeyfoldError(f"an error inside the service; its log has it under the id {number}", code=ErrorCode.INTERNAL)
    return problem(request, hidden, HTTPStatus.INTERNAL_SERVER_ERROR, instance=number.urn)


_HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], ProblemResponse]] = {
    KeyfoldError: _keyfold_error,
    RequestValidationError: _validation_error,
    HTTPException: _http_exception,
    RecursionError: _recursion_error,
    Exception: internal_error,
}


def install_problems(app: FastAPI) -> None:
    """Let ``app`` answer every failure with a ``Problem``."""
    for kind, answer in _HANDLERS.items():
        app.add_exception_handler(kind, answer)
