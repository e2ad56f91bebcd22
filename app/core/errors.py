"""The kinds of failure that Keyfold's core knows; one table in ``app.api.problems`` turns a kind into an HTTP
status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class ErrorCode(StrEnum):
    """Every ``errorCode`` that the service may answer; a closed set, so clients can switch on it."""

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


class FaultCode(StrEnum):
    """Every ``errors[].code`` of a violation; a closed set, so clients can switch on it."""

    BAD_DATE = "bad_date"
    BAD_HEADER = "bad_header"
    BAD_ROW_KIND = "bad_row_kind"
    BAD_TIME = "bad_time"
    BAD_TIMESTAMP = "bad_timestamp"
    CHANGELOG_NOT_REPAIRED = "changelog_not_repaired"
    CHANGES_COME_LATE = "changes_come_late"
    COLUMN_IN_NO_GROUP = "column_in_no_group"
    COLUMN_IN_TWO_GROUPS = "column_in_two_groups"
    COLUMN_IN_USE = "column_in_use"
    CONTRADICTING_DATABASE = "contradicting_database"
    CONTRADICTING_OPTIONS = "contradicting_options"
    CONTRADICTING_PARAMETERS = "contradicting_parameters"
    CROSS_SITE = "cross_site"
    DUPLICATE_COLUMN = "duplicate_column"
    DUPLICATE_KEY = "duplicate_key"
    EMPTY_NAME = "empty_name"
    EMPTY_RANGE = "empty_range"
    FOREIGN_HOST = "foreign_host"
    FOREIGN_ORIGIN = "foreign_origin"
    FUNCTION_OUTSIDE_GROUP = "function_outside_group"
    GROUP_REPLACED_WHOLE = "group_replaced_whole"
    ILLEGAL_COLUMN_TYPE = "illegal_column_type"
    ILLEGAL_DEFAULT = "illegal_default"
    ILLEGAL_DURATION = "illegal_duration"
    ILLEGAL_FUNCTION_TYPE = "illegal_function_type"
    ILLEGAL_KEY_TYPE = "illegal_key_type"
    ILLEGAL_MOVE = "illegal_move"
    ILLEGAL_NAME = "illegal_name"
    ILLEGAL_OPTION_VALUE = "illegal_option_value"
    ILLEGAL_ORDER_TYPE = "illegal_order_type"
    ILLEGAL_PATH = "illegal_path"
    ILLEGAL_TEXT = "illegal_text"
    ILLEGAL_TYPE_CHANGE = "illegal_type_change"
    IMMUTABLE_OPTION = "immutable_option"
    JSON_INVALID = "json_invalid"
    KEY_COLUMN = "key_column"
    KEY_IN_GROUP = "key_in_group"
    KEY_WITH_DEFAULT = "key_with_default"
    LAST_FIELD = "last_field"
    LATE_RECORDS_COUNT = "late_records_count"
    LOCATION_NOT_ALLOWED = "location_not_allowed"
    MALFORMED_OPTION = "malformed_option"
    MERGES_READ_OLDER_RUNS = "merges_read_older_runs"
    MISSING = "missing"
    MISSING_COLUMN = "missing_column"
    MISSING_OPTION = "missing_option"
    MISSING_PARTITION_KEYS = "missing_partition_keys"
    MISSING_PRIMARY_KEY = "missing_primary_key"
    MISSING_TOKEN = "missing_token"  # noqa: S105  # a code, no secret
    NAME_TOO_LONG = "name_too_long"
    NESTED_COLUMN = "nested_column"
    NESTED_TOO_DEEPLY = "nested_too_deeply"
    NO_FREE_ID = "no_free_id"
    NO_INSTANT = "no_instant"
    NO_TOKEN_LEFT = "no_token_left"  # noqa: S105  # a code, no secret
    NOT_A_LIST = "not_a_list"
    NOT_A_NUMBER = "not_a_number"
    NOT_A_POSITION = "not_a_position"
    NOT_AN_OBJECT = "not_an_object"
    NOT_BASE64 = "not_base64"
    NOT_BOOLEAN = "not_boolean"
    NOT_JSON = "not_json"
    NOT_NULL_COLUMN = "not_null_column"
    NOT_TEXT = "not_text"
    NOT_UNICODE = "not_unicode"
    NULL_IN_NOT_NULL = "null_in_not_null"
    NULL_IN_PADDED_SEQUENCE = "null_in_padded_sequence"
    NULL_NEVER_WRITTEN = "null_never_written"
    NULL_TO_NOT_NULL = "null_to_not_null"
    OPTION_WITHOUT_EFFECT = "option_without_effect"
    OUT_OF_RANGE = "out_of_range"
    PARTITION_COLUMN = "partition_column"
    PARTITION_KEY_OUTSIDE_PRIMARY_KEY = "partition_key_outside_primary_key"
    PATH_NOT_ALLOWED = "path_not_allowed"
    PRIMARY_KEY_NEEDED = "primary_key_needed"
    PRIMARY_KEY_TWICE = "primary_key_twice"
    REFUSED_ROW_KIND = "refused_row_kind"
    RESERVED_NAME = "reserved_name"
    TOO_LARGE = "too_large"
    TOO_LONG = "too_long"
    TOO_MANY_CHANGES = "too_many_changes"
    TOO_MANY_DIGITS = "too_many_digits"
    TOO_SLOW = "too_slow"
    UNKNOWN_ACTION = "unknown_action"
    UNKNOWN_COLUMN = "unknown_column"
    UNKNOWN_FIELD = "unknown_field"
    UNKNOWN_FUNCTION = "unknown_function"
    UNKNOWN_GROUP = "unknown_group"
    UNKNOWN_MEMBER = "unknown_member"
    UNKNOWN_MOVE = "unknown_move"
    UNKNOWN_OPTION = "unknown_option"
    UNKNOWN_PARAMETER = "unknown_parameter"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105  # a code, no secret
    UNKNOWN_TYPE = "unknown_type"
    UNSUPPORTED_TYPE = "unsupported_type"
    WRONG_KEY_LENGTH = "wrong_key_length"
    WRONG_TYPE = "wrong_type"


@dataclass(frozen=True)
class Violation:
    """One fault of a request.

    ``pointer`` is a JSON pointer into the request body (RFC 6901), ``code`` a short machine-readable reason such as
    ``out_of_range``, ``message`` what is wrong, ``fix`` what to do next. A fault of a record also names its ``row``
    (index in the request, from 0) and ``column``.
    """

    pointer: str
    code: FaultCode
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
