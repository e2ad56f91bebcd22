"""Violations: what is wrong with a request, each with its code, its place and its fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


# A new code needs a line in docs/errors.md, and a case in tests/api/fault_cases.py.
class FaultCode(StrEnum):
    """Every ``errors[].code`` of a violation; a closed set, so clients can switch on it."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        """Return the member whose value is ``code``."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    ABSENT_IS_NULL = (
        "absent_is_null",
        "warning: record.absent-columns is not set, so a column that a record leaves out is null to it",
    )
    BAD_DATE = "bad_date", "text that is no date of the calendar, YYYY-MM-DD"
    BAD_HEADER = "bad_header", "a header of the request is malformed, too long or empty"
    BAD_ROW_KIND = "bad_row_kind", "a record's row kind is not one of +I, -U, +U and -D"
    BAD_TIME = "bad_time", "text that is no time of day, HH:MM:SS"
    BAD_TIMESTAMP = (
        "bad_timestamp",
        "text that is no date and time, or has an offset where none may be or lacks one where one must be",
    )
    BOOL_PARSING = "bool_parsing", "text that is neither true nor false"
    BOOL_TYPE = "bool_type", "a value that is neither true nor false"
    CHANGED_SINCE = "changed_since", "If-Match names an ETag that the table has no longer"
    CHANGELOG_NOT_REPAIRED = (
        "changelog_not_repaired",
        "warning: the changelog is the posted records, not the changes of rows",
    )
    CHANGES_COME_LATE = "changes_come_late", "warning: the changelog grows with full compactions only"
    CLAUSE_LEFT_OUT = (
        "clause_left_out",
        "warning: a column or clause of a CREATE TABLE is the engine's own and was left out",
    )
    CLAUSE_NOT_TAKEN = "clause_not_taken", "a CREATE TABLE has a clause that Keyfold does not take"
    COLUMN_IN_NO_GROUP = "column_in_no_group", "warning: late records overwrite a column that is in no sequence group"
    COLUMN_IN_TWO_GROUPS = "column_in_two_groups", "a column is in two sequence groups, or in two places of one"
    COLUMN_IN_USE = "column_in_use", "a column cannot be dropped while an option names it"
    CONDITION_NOT_TAKEN = "condition_not_taken", "the operation looks at no condition of the kind that a header states"
    CONTRADICTING_DATABASE = "contradicting_database", "the body names another database than the path"
    CONTRADICTING_KEY = "contradicting_key", "the body names another key than the path"
    CONTRADICTING_OPTIONS = (
        "contradicting_options",
        "two options, or an option and the merge engine, exclude each other",
    )
    CONTRADICTING_PARAMETERS = "contradicting_parameters", "two query parameters exclude each other"
    CROSS_SITE = "cross_site", "a page of another origin made a browser send the request"
    DICT_TYPE = "dict_type", "a member of the body should be an object"
    DUPLICATE_COLUMN = "duplicate_column", "a column or field is named twice, or its new name is taken"
    DUPLICATE_KEY = "duplicate_key", "a MAP names a key twice, or an object of a body a member"
    EMPTY_NAME = "empty_name", "the name of a database, table, tag or token is empty"
    EMPTY_RANGE = "empty_range", "the last requested snapshot is before the first"
    ENUM = "enum", "the parameter does not know the value"
    EVENTS_UNORDERED = "events_unordered", "warning: change events that come late or twice overwrite newer ones"
    EXPIRED_TOKEN = "expired_token", "the bearer token has expired"
    FOREIGN_CONNECTOR = "foreign_connector", "a CREATE TABLE is for another connector, or format, than Paimon's"
    FOREIGN_EVENT = "foreign_event", "a change event is of another table of the source than this table takes"
    FOREIGN_HOST = "foreign_host", "without tokens, the request must name this machine"
    FOREIGN_ORIGIN = "foreign_origin", "a page of another origin sent the request"
    FUNCTION_OUTSIDE_GROUP = (
        "function_outside_group",
        "partial-update has an aggregate function on a column without sequence group",
    )
    GROUP_REPLACED_WHOLE = (
        "group_replaced_whole",
        "warning: a record with a group's sequence replaces all its columns, missing ones by null",
    )
    ILLEGAL_COLUMN_TYPE = "illegal_column_type", "an option names a column whose type it cannot use"
    ILLEGAL_DEFAULT = "illegal_default", "a default is no value of its column's type"
    ILLEGAL_DURATION = "illegal_duration", "text that is no duration, or one of no length"
    ILLEGAL_EXPIRY = "illegal_expiry", "text that is neither a duration nor a future time with its offset"
    ILLEGAL_FUNCTION_TYPE = "illegal_function_type", "an aggregate function does not take the column's type"
    ILLEGAL_KEY_TYPE = "illegal_key_type", "a column's type cannot be a key"
    ILLEGAL_MOVE = (
        "illegal_move",
        "a move names the moved column as its own reference, or another column than the added one",
    )
    ILLEGAL_NAME = "illegal_name", "a name has characters, or is a word, that names cannot have here"
    ILLEGAL_OPTION_VALUE = "illegal_option_value", "an option cannot have this value"
    ILLEGAL_ORDER_TYPE = "illegal_order_type", "values of this type cannot order records"
    ILLEGAL_PATH = "illegal_path", "a path leads into a type that has no member of that name"
    ILLEGAL_SCOPE = "illegal_scope", "text that is no pattern of databases and tables, or too few or many of them"
    ILLEGAL_TEXT = "illegal_text", "text that no catalog can store: U+0000, or half a surrogate pair"
    ILLEGAL_TYPE_CHANGE = "illegal_type_change", "the new type would not hold every value of the old one"
    IMMUTABLE_OPTION = "immutable_option", "an option can no longer change, because stored rows were folded under it"
    INT_PARSING = "int_parsing", "text that is not a whole number"
    INT_PARSING_SIZE = "int_parsing_size", "a whole number with too many digits"
    INT_TYPE = "int_type", "a member of the body should be a whole number"
    JSON_INVALID = "json_invalid", "the body is not JSON"
    KEY_COLUMN = "key_column", "a change that columns of the key do not allow"
    KEY_IN_GROUP = "key_in_group", "a key column is in a sequence group"
    KEY_WITH_DEFAULT = "key_with_default", "a key or partition column has a default"
    LAST_FIELD = "last_field", "the only field of a ROW cannot be dropped"
    LATE_RECORDS_COUNT = (
        "late_records_count",
        "warning: a function counts late records, or repeated deliveries, too",
    )
    LENGTH_OF_ONE = (
        "length_of_one",
        "warning: a text or bytes column holds one character or byte, as a type without a length does",
    )
    LIST_TYPE = "list_type", "a member of the body should be a list"
    LOCATION_NOT_ALLOWED = "location_not_allowed", "Keyfold chooses the location of its databases"
    MALFORMED_OPTION = "malformed_option", "the key of a column's option names no column, or several"
    MERGES_READ_OLDER_RUNS = (
        "merges_read_older_runs",
        "warning: merges cost more as the table grows, because they look rows up in older runs",
    )
    MISSING = "missing", "a needed member of the body, or parameter, is not there"
    MISSING_COLUMN = "missing_column", "a record lacks a column that cannot be null"
    MISSING_OPTION = "missing_option", "an option needs another option"
    MISSING_PARTITION_KEYS = "missing_partition_keys", "an option needs partition keys, and the table has none"
    MISSING_PRIMARY_KEY = "missing_primary_key", "the table has no primary key"
    MISSING_ROLE = "missing_role", "the token's role does not permit the operation"
    MISSING_SCOPE = "missing_scope", "the token does not cover the database or table of the request"
    MISSING_TOKEN = "missing_token", "the request has no bearer token"
    MODEL_ATTRIBUTES_TYPE = "model_attributes_type", "the body, or a member of it, should be an object of known members"
    NAME_TOO_LONG = "name_too_long", "a name has too many characters"
    NESTED_COLUMN = "nested_column", "a change that is only allowed on whole columns names a nested field"
    NESTED_TOO_DEEPLY = "nested_too_deeply", "a type has too many types inside each other, or a body too many levels"
    NO_FREE_ID = "no_free_id", "the table has used up its column ids"
    NO_INSTANT = "no_instant", "a rollback names no snapshot, or several"
    NO_ROOM = "no_room", "the disk of the warehouse or of the data folder has too little room"
    NO_TOKEN_LEFT = "no_token_left", "the service needs a token, and all have expired or were revoked"
    NOT_A_LIST = "not_a_list", "a list of names is expected"
    NOT_A_NUMBER = "not_a_number", "text that is no number in the range that is needed"
    NOT_A_POSITION = "not_a_position", "a page token or event id that no answer of the route gave"
    NOT_ACCEPTABLE = "not_acceptable", "the Accept header accepts none of the media types of the route"
    NOT_AN_OBJECT = "not_an_object", "a JSON object is expected"
    NOT_BASE64 = "not_base64", "text that is not base64"
    NOT_BOOLEAN = "not_boolean", "true or false is expected"
    NOT_IN_DELTA = "not_in_delta", "a column that cannot be published as Delta as it is stored"
    NOT_IN_ICEBERG = "not_in_iceberg", "a column that cannot be published as Iceberg as it is stored"
    NOT_JSON = "not_json", "a body, or a line of it, is not JSON"
    NOT_NULL_COLUMN = "not_null_column", "an added column cannot be NOT NULL, for rows have no value for it"
    NOT_SQL = "not_sql", "text that is no CREATE TABLE statement"
    NOT_TEXT = "not_text", "text is expected"
    NOT_UNICODE = "not_unicode", "text with half a surrogate pair"
    NULL_IN_NOT_NULL = "null_in_not_null", "null where the type is NOT NULL"
    NULL_IN_PADDED_SEQUENCE = "null_in_padded_sequence", "null in a sequence field that sequence.auto-padding pads"
    NULL_NEVER_WRITTEN = "null_never_written", "warning: null never overwrites, so columns cannot be emptied"
    NULL_TO_NOT_NULL = "null_to_not_null", "a column that may hold null cannot become NOT NULL"
    OPTION_WITHOUT_EFFECT = "option_without_effect", "warning: the option means nothing here"
    OUT_OF_RANGE = "out_of_range", "a number, a length or a precision is outside its range"
    PARTITION_COLUMN = "partition_column", "a change that partition columns do not allow"
    PARTITION_KEY_OUTSIDE_PRIMARY_KEY = (
        "partition_key_outside_primary_key",
        "a partition column is not in the primary key",
    )
    PATH_NOT_ALLOWED = "path_not_allowed", "Keyfold chooses the path of its tables"
    POSITION_ORDERS_NOTHING = "position_orders_nothing", "warning: a position of events is stored, but orders nothing"
    PRIMARY_KEY_NEEDED = "primary_key_needed", "the primary key cannot be dropped"
    PRIMARY_KEY_TWICE = "primary_key_twice", "the primary key is given both in primaryKeys and by the option"
    REFUSED_ROW_KIND = "refused_row_kind", "the table's rules do not accept this row kind"
    RESERVED_NAME = "reserved_name", "a name that means something else already"
    STAGED_BYTES = "staged_bytes", "the staging area has as many bytes as it may"
    STAGED_RECORDS = "staged_records", "the staging area has as many records as it may"
    STAGED_TOO_LONG = "staged_too_long", "the table's oldest staged batch waits for its merge for too long"
    STRING_TYPE = "string_type", "a member of the body should be text"
    TOO_LARGE = "too_large", "the body is larger than the route takes, or the answer than one may be"
    TOO_LONG = "too_long", "text, bytes or a list is longer than it may be"
    TOO_MANY = "too_many", "there are more of something (columns, keys, options, tables, parameters) than may be"
    TOO_MANY_CHANGES = "too_many_changes", "an alter has too many changes"
    TOO_MANY_DIGITS = "too_many_digits", "a value has more digits after the point than its type"
    TOO_MANY_FAILURES = "too_many_failures", "too many requests without a valid token came from one address"
    TOO_MANY_REQUESTS = "too_many_requests", "a token was used more often than the service allows"
    TOO_SHORT = "too_short", "a list has too few elements"
    TOO_SLOW = "too_slow", "nothing came of the body for too long"
    UNFOLDABLE_VALUE = "unfoldable_value", "the column's function cannot fold this value"
    UNION_TAG_INVALID = "union_tag_invalid", "the type of an instant is not known"
    UNION_TAG_NOT_FOUND = "union_tag_not_found", "an instant has no type"
    UNKNOWN_ACTION = "unknown_action", "the action of a change is not known"
    UNKNOWN_COLUMN = "unknown_column", "a column, or a field by its path, does not exist"
    UNKNOWN_FIELD = "unknown_field", "a ROW has no field of that name"
    UNKNOWN_FUNCTION = "unknown_function", "an aggregate function is not known"
    UNKNOWN_GROUP = "unknown_group", "a column orders no sequence group"
    UNKNOWN_MEMBER = "unknown_member", "the body has a member that the route does not know"
    UNKNOWN_MOVE = "unknown_move", "the type of a move is not known"
    UNKNOWN_OPTION = "unknown_option", "an option is not known"
    UNKNOWN_PARAMETER = "unknown_parameter", "a query parameter is not known"
    UNKNOWN_TABLE = "unknown_table", "no table of the database takes the records or events"
    UNKNOWN_TOKEN = "unknown_token", "the bearer token is not known, or was revoked"
    UNKNOWN_TYPE = "unknown_type", "text that is no data type"
    UNREADABLE_BODY = "unreadable_body", "the body does not match its media type or content encoding"
    UNSUPPORTED_TYPE = "unsupported_type", "a type of Paimon's that cannot be held here"
    UNUSABLE_EVENT = "unusable_event", "a change event is no change of a row, or lacks the row"
    WAREHOUSE_NOT_WRITABLE = "warehouse_not_writable", "the warehouse cannot be written"
    WRONG_DIGEST = "wrong_digest", "the body does not match its Content-Digest"
    WRONG_FIELD_COUNT = "wrong_field_count", "a line of CSV has more or fewer fields than the header"
    WRONG_KEY_LENGTH = "wrong_key_length", "a key has more or fewer values than the primary key has columns"
    WRONG_SIGNATURE = "wrong_signature", "the request's signature lacks a part, is too old, or was made by no token"
    WRONG_TYPE = "wrong_type", "a value is not of its column's type"


@dataclass(frozen=True)
class About:
    """The parts of a table's schema that a fault is about.

    ``option`` is a key as the request spells it, empty for the options as a whole; ``columns`` are the columns at
    fault, or in conflict with the option. In a text the fault is at the character ``offset`` (from 0), and
    ``short_message`` is the message without line and excerpt.
    """

    option: str | None = None
    columns: tuple[str, ...] = ()
    offset: int | None = None
    short_message: str = ""


@dataclass(frozen=True)
class Violation:
    """One fault of a request.

    ``pointer`` is a JSON pointer into the request body (RFC 6901), ``code`` a short machine-readable reason such as
    ``out_of_range``, ``message`` what is wrong, ``fix`` what to do next. A fault of a record also names its ``row``
    (index in the request, from 0) and ``column``, and its ``table`` where the request is for several. ``about`` is for
    code that continues with the fault, which reads neither its message nor its pointer.
    """

    pointer: str
    code: FaultCode
    message: str
    fix: str = ""
    row: int | None = None
    column: str | None = None
    table: str | None = None
    about: About = About()
