"""The kinds of failure that Keyfold's core knows; one table in ``app.api.shared.problems`` turns a kind into an HTTP
status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

from app.core.faults import About, FaultCode, Violation

# Callers that raise an error import these from here, too.
__all__ = ["About", "FaultCode", "Violation"]


class ErrorCode(StrEnum):
    """Every ``errorCode`` that the service may answer; a closed set, so clients can switch on it."""

    INVALID_REQUEST = "invalid_request"
    INVALID_SCHEMA = "invalid_schema"
    INVALID_OPTIONS = "invalid_options"
    INVALID_RECORDS = "invalid_records"
    INVALID_KEY = "invalid_key"
    NOT_ACCEPTABLE = "not_acceptable"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    REQUEST_TIMEOUT = "request_timeout"
    TOO_MANY_REQUESTS = "too_many_requests"
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
    SET_ASIDE_EVENT_NOT_FOUND = "set_aside_event_not_found"
    MERGE_NOT_FOUND = "merge_not_found"
    MERGE_NOT_COMMITTED = "merge_not_committed"
    SNAPSHOT_NOT_FOUND = "snapshot_not_found"
    CHANGELOG_NOT_KEPT = "changelog_not_kept"
    PATCH_NOT_TAKEN = "patch_not_taken"
    SCHEMA_NOT_FOUND = "schema_not_found"
    TAG_NOT_FOUND = "tag_not_found"
    TAG_ALREADY_EXISTS = "tag_already_exists"
    FORGETTING_NOT_FOUND = "forgetting_not_found"
    SNAPSHOT_TO_FORGET = "snapshot_to_forget"
    PUBLICATION_STOPPED = "publication_stopped"
    TOKEN_NOT_FOUND = "token_not_found"  # noqa: S105  # no password
    TOKEN_ALREADY_EXISTS = "token_already_exists"  # noqa: S105  # the same
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    REQUEST_IN_FLIGHT = "request_in_flight"
    BATCH_NOT_STAGED = "batch_not_staged"
    BATCH_NOT_SET_ASIDE = "batch_not_set_aside"
    COMMIT_CONFLICT = "commit_conflict"
    PRECONDITION_FAILED = "precondition_failed"
    CATALOG_FULL = "catalog_full"
    MERGE_FAILED = "merge_failed"
    DAMAGED_CATALOG = "damaged_catalog"
    DAMAGED_FILE = "damaged_file"
    STAGING_FULL = "staging_full"
    NOT_IMPLEMENTED = "not_implemented"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class KeyfoldError(Exception):
    """A failure that is reported to the caller. ``code`` identifies it, ``violations`` lists every fault of the
    request.
    """

    default_code: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    default_retry_seconds: ClassVar[float | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        violations: Sequence[Violation] = (),
        total_violations: int | None = None,
        resource_type: str | None = None,
        resource_name: str | None = None,
        retry_seconds: float | None = None,
    ) -> None:
        """``retry_seconds``: when to retry, if known."""
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.violations = tuple(violations)
        self.total_violations = len(self.violations) if total_violations is None else total_violations
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.retry_seconds = self.default_retry_seconds if retry_seconds is None else retry_seconds


def first_of(faults: Sequence[Violation]) -> str:
    """Return the message of the first fault, and how many more there are: Paimon's clients show only the message of an
    error.
    """
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0].message}{more}"


class Invalid(KeyfoldError):
    """The request contradicts itself, the schema or the specification."""

    default_code = ErrorCode.INVALID_REQUEST


class TooLarge(KeyfoldError):
    """The request is larger than the settings allow."""

    default_code = ErrorCode.PAYLOAD_TOO_LARGE


class NotAcceptable(KeyfoldError):
    """The caller accepts none of the formats that the route answers."""

    default_code = ErrorCode.NOT_ACCEPTABLE


class UnsupportedMediaType(KeyfoldError):
    """The body is in a format that the route does not read."""

    default_code = ErrorCode.UNSUPPORTED_MEDIA_TYPE


class Unauthorized(KeyfoldError):
    """The request carries no valid bearer token."""

    default_code = ErrorCode.UNAUTHORIZED


class Forbidden(KeyfoldError):
    """The request comes from a page, or names a host, that this service refuses, or its token lacks the permission."""

    default_code = ErrorCode.FORBIDDEN


class TooMany(KeyfoldError):
    """The caller exceeds the rate limit of the settings."""

    default_code = ErrorCode.TOO_MANY_REQUESTS


class TooSlow(KeyfoldError):
    """The rest of the request did not come in time."""

    default_code = ErrorCode.REQUEST_TIMEOUT


class NotFound(KeyfoldError):
    """The request names something that does not exist."""

    default_code = ErrorCode.ROUTE_NOT_FOUND


class Resource(StrEnum):
    """Kinds of things that a request names and that may be missing; the ``resourceType`` of the answer."""

    DATABASE = "DATABASE"
    TABLE = "TABLE"
    BATCH = "BATCH"
    SET_ASIDE_EVENT = "SET_ASIDE_EVENT"
    MERGE = "MERGE"
    SNAPSHOT = "SNAPSHOT"
    SCHEMA = "SCHEMA"
    TAG = "TAG"
    FORGETTING = "FORGETTING"
    TOKEN = "TOKEN"  # noqa: S105  # no password


_MISSING: Mapping[Resource, tuple[ErrorCode, str]] = {
    Resource.DATABASE: (ErrorCode.DATABASE_NOT_FOUND, "database {!r} does not exist"),
    Resource.TABLE: (ErrorCode.TABLE_NOT_FOUND, "table {!r} does not exist"),
    Resource.BATCH: (ErrorCode.BATCH_NOT_FOUND, "batch {!r} does not exist"),
    Resource.SET_ASIDE_EVENT: (
        ErrorCode.SET_ASIDE_EVENT_NOT_FOUND,
        "set-aside event {!r} does not exist; GET …/set-aside-events lists them",
    ),
    Resource.MERGE: (ErrorCode.MERGE_NOT_FOUND, "merge {!r} does not exist"),
    Resource.SNAPSHOT: (ErrorCode.SNAPSHOT_NOT_FOUND, "snapshot {!r} does not exist; GET …/snapshots lists them"),
    Resource.SCHEMA: (ErrorCode.SCHEMA_NOT_FOUND, "schema {!r} does not exist; GET of the table shows the newest one"),
    Resource.TAG: (ErrorCode.TAG_NOT_FOUND, "tag {!r} does not exist; GET …/tags lists them"),
    Resource.FORGETTING: (
        ErrorCode.FORGETTING_NOT_FOUND,
        "forgetting {!r} does not exist; GET …/forgettings lists them",
    ),
    Resource.TOKEN: (ErrorCode.TOKEN_NOT_FOUND, "token {!r} does not exist; GET /v1/tokens lists them"),
}


def not_found(resource: Resource, name: str, message: str | None = None) -> NotFound:
    """Return the failure for a ``resource`` called ``name`` that does not exist (any more).

    Its message is ``message`` if given.
    """
    code, text = _MISSING[resource]
    return NotFound(message or text.format(name), code=code, resource_type=resource, resource_name=name)


class DamagedCatalog(KeyfoldError):
    """The catalog has a value that was never stored."""

    default_code = ErrorCode.DAMAGED_CATALOG

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the catalog is damaged: {what}; stop the service and restore the catalog from a backup"
            " (docs/damage.md#a-damaged-catalog)"
        )


class AlreadyExists(KeyfoldError):
    """The request creates something that exists already."""

    default_code = ErrorCode.TABLE_ALREADY_EXISTS


class Conflict(KeyfoldError):
    """The request is valid, but conflicts with the state of its resource."""

    default_code = ErrorCode.COMMIT_CONFLICT


class PreconditionFailed(KeyfoldError):
    """The resource has changed since the sender read it."""

    default_code = ErrorCode.PRECONDITION_FAILED


class Unfoldable(Conflict):
    """Records that their table cannot hold: no merge of them will succeed. ``batch_number`` is that of their
    batch, if known.
    """

    default_code = ErrorCode.MERGE_FAILED

    def __init__(self, message: str, batch_number: int | None = None) -> None:
        super().__init__(message)
        self.batch_number = batch_number


class KeyReused(KeyfoldError):
    """The Idempotency-Key belongs to another request."""

    default_code = ErrorCode.IDEMPOTENCY_KEY_REUSED


class Unsupported(KeyfoldError):
    """A legal request for something this version cannot do."""

    default_code = ErrorCode.NOT_IMPLEMENTED


class Cancelled(Exception):
    """Work was stopped on request."""


class Unavailable(KeyfoldError):
    """A part that the request needs (the catalog, Spark) does not answer now; a later retry may succeed."""

    default_code = ErrorCode.UNAVAILABLE
    default_retry_seconds = 1


class NotStored(Unavailable):
    """The service is unavailable, and certainly nothing of the request was stored."""


class NotSpark(Unavailable):
    """Another server, or another version, answers at Spark's address; a retry does not help."""


class StagingFull(KeyfoldError):
    """The staging area has reached its bound; merges must catch up first."""

    default_code = ErrorCode.STAGING_FULL
    default_retry_seconds = 5


def escape_pointer(segment: str) -> str:
    """Return ``segment`` as one reference token of a JSON pointer (RFC 6901 §3)."""
    return segment.replace("~", "~0").replace("/", "~1")
