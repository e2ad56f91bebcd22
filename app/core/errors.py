"""The kinds of failure that Keyfold's core knows; one table in ``app.api.problems`` turns a kind into an HTTP
status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class ErrorCode(StrEnum):
    """Every ``errorCode`` and ``errors[].code`` that the service may answer; a closed set, so clients can switch on
    it.
    """

    INVALID_REQUEST = "invalid_request"
    INVALID_SCHEMA = "invalid_schema"
    INVALID_OPTIONS = "invalid_options"
    INVALID_RECORDS = "invalid_records"
    INVALID_KEY = "invalid_key"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    REQUEST_TIMEOUT = "request_timeout"
    DATABASE_NOT_FOUND = "database_not_found"
    DATABASE_ALREADY_EXISTS = "database_already_exists"
    DATABASE_NOT_EMPTY = "database_not_empty"
    TABLE_NOT_FOUND = "table_not_found"
    TABLE_ALREADY_EXISTS = "table_already_exists"
    TABLE_HAS_STAGED_BATCHES = "table_has_staged_batches"
    COLUMN_NOT_FOUND = "column_not_found"
    COLUMN_ALREADY_EXISTS = "column_already_exists"
    ROW_NOT_FOUND = "row_not_found"
    BATCH_NOT_FOUND = "batch_not_found"
    MERGE_NOT_FOUND = "merge_not_found"
    SNAPSHOT_NOT_FOUND = "snapshot_not_found"
    CHANGELOG_NOT_KEPT = "changelog_not_kept"
    TAG_NOT_FOUND = "tag_not_found"
    TAG_ALREADY_EXISTS = "tag_already_exists"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    BATCH_NOT_STAGED = "batch_not_staged"
    COMMIT_CONFLICT = "commit_conflict"
    MERGE_FAILED = "merge_failed"
    NOT_IMPLEMENTED = "not_implemented"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


@dataclass(frozen=True)
class Violation:
    """One fault of a request.

    ``pointer`` is a JSON pointer into the request body (RFC 6901), ``code`` a short machine-readable reason such as
    ``out_of_range``, ``message`` what is wrong, ``fix`` what to do next. A fault of a record also names its ``row``
    (index in the request, from 0) and ``column``.
    """

    pointer: str
    code: str
    message: str
    fix: str = ""
    row: int | None = None
    column: str | None = None


class KeyfoldError(Exception):
    """Something the caller must be told; ``code`` says which, ``violations`` lists every fault of the request."""

    default_code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        violations: Sequence[Violation] = (),
        total_violations: int | None = None,
        resource_type: str | None = None,
        resource_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.violations = tuple(violations)
        self.total_violations = len(self.violations) if total_violations is None else total_violations
        self.resource_type = resource_type
        self.resource_name = resource_name


class Invalid(KeyfoldError):
    """The request contradicts itself, the schema or the specification."""

    default_code = ErrorCode.INVALID_REQUEST


class TooLarge(KeyfoldError):
    """The request is larger than the settings allow."""

    default_code = ErrorCode.PAYLOAD_TOO_LARGE


class UnsupportedMediaType(KeyfoldError):
    """The body is in a format that the route does not read."""

    default_code = ErrorCode.UNSUPPORTED_MEDIA_TYPE


class Unauthorized(KeyfoldError):
    """The request carries no valid bearer token."""

    default_code = ErrorCode.UNAUTHORIZED


class Forbidden(KeyfoldError):
    """The request comes from a page, or names a host, that this service does not answer to."""

    default_code = ErrorCode.FORBIDDEN


class TooSlow(KeyfoldError):
    """The rest of the request did not come in time."""

    default_code = ErrorCode.REQUEST_TIMEOUT


class NotFound(KeyfoldError):
    """What the request names does not exist."""

    default_code = ErrorCode.ROUTE_NOT_FOUND


class AlreadyExists(KeyfoldError):
    """What the request creates exists already."""

    default_code = ErrorCode.TABLE_ALREADY_EXISTS


class Conflict(KeyfoldError):
    """The request is valid but the state of what it names forbids it."""

    default_code = ErrorCode.COMMIT_CONFLICT


class Unsupported(KeyfoldError):
    """A legal request for something this version cannot do."""

    default_code = ErrorCode.NOT_IMPLEMENTED


class Cancelled(Exception):
    """Work was stopped on request."""


class Unavailable(KeyfoldError):
    """A part that the request needs (the catalog, Spark) does not answer now; trying again later may succeed."""

    default_code = ErrorCode.UNAVAILABLE
