"""Texts of requests: types, schemas, options, changes of tables, filters, keys, page tokens, patterns."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pyarrow as pa

from app.core.access import TokenScope
from app.core.alter.changes import alter_schema
from app.core.ddl.reader import read_tables
from app.core.ddl.writer import table_ddl
from app.core.errors import FaultCode, Invalid, KeyfoldError, Violation
from app.core.plan.records.row_filters import parse_filters
from app.core.table.keys import key_from_json, key_from_text, key_to_json, same_key, token_of
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS
from app.core.types.dialects import Dialect
from app.core.types.parser import TypeSyntaxError, parse_type, type_to_json
from app.files.arrow import arrow_type, staging_schema
from app.services.access.tokens import _expiry
from app.services.bodies.json_bodies import parse_json
from app.services.explaining.simulations import simulate_merge
from app.services.rows.scan_pages import read_token
from app.services.shared.pages import PageRequest, is_like, like
from app.services.tables.rules import table_rules
from app.services.tables.tables import DEEPEST_TYPE, validate_table
from app.storage.scans.conditions import matching
from lab.fuzz.bodies import AT
from lab.fuzz.tables import EVERY_TYPE, KEYED, TABLES
from lab.fuzz.target import Target, chosen, lines


def _type(body: bytes) -> None:
    text = "\n".join(lines(body))
    read = parse_type(parse_json(body) if text.startswith(("{", '"')) else text)
    assert parse_type(type_to_json(read)).sql == read.sql == parse_type(read.sql).sql


def _schema(body: bytes) -> None:
    sent = parse_json(body)
    if isinstance(sent, dict):
        _declare(sent)


def _declare(sent: dict[str, Any]) -> None:
    schema = validate_table("orders", sent)
    table_rules(schema)
    staging_schema(schema)
    assert TableSchema.from_json(schema.to_json()) == schema


def _options(body: bytes) -> None:
    """Options of a table, one a line."""
    schema, body = chosen(body, [*TABLES.values()])
    given = dict(line.partition("=")[::2] for line in lines(body))
    _declare({**schema.to_json(), "options": given})


def _alter(body: bytes) -> None:
    """The changes of one request: of an empty table, and of one with rows."""
    schema, body = chosen(body, [*TABLES.values()])
    changes = parse_json(body)
    for has_rows in (False, True):
        try:
            altered = alter_schema(
                schema,
                changes if isinstance(changes, list) else [changes],
                highest_id=1000,
                has_rows=has_rows,
                deepest_type=DEEPEST_TYPE,
            )
        except KeyfoldError:
            if has_rows:
                raise
        else:
            list(DEFAULT_BOUNDS.table.faults(altered, schema))
            table_rules(altered)


def _statements(body: bytes) -> None:
    """CREATE TABLE in either dialect; what is a table is written as it is read."""
    text = "\n".join(lines(body))
    for dialect in Dialect:
        with suppress(KeyfoldError):
            for statement in read_tables(text, dialect):
                statement.in_source([Violation(pointer, FaultCode.MISSING, "") for pointer in statement.places])
                schema = validate_table(statement.name, statement.body)
                [again] = read_tables(table_ddl(statement.name, schema, Dialect.FLINK), Dialect.FLINK)
                assert TableSchema.from_json(again.body) == schema
    read_tables(text)


_ROW = pa.record_batch([pa.nulls(1, arrow_type(column.type)) for column in EVERY_TYPE.columns], [*EVERY_TYPE.by_name])


def _filters(body: bytes) -> None:
    conditions = parse_filters(EVERY_TYPE, lines(body))
    if conditions:
        matching(_ROW, conditions)


def _key(body: bytes) -> None:
    """A value a line; those that are missing are of the seed."""
    texts = lines(body)
    key = key_from_text(KEYED, [*texts, *KEY[len(texts) :]][: len(KEY)])
    shown = json.loads(json.dumps(key_to_json(KEYED, key)))
    again = key_from_json(KEYED, shown, "/keys/0")
    assert same_key(key, again)
    assert token_of(KEYED, key) == token_of(KEYED, again)


KEY = (
    *(
        "true",
        "1",
        "2",
        "3",
        "4",
        "0.5",
        "1.5",
        "12.50",
        "-0.0000000001",
        "text",
        "abc",
        "12345",
        "AQI=",
        "AQI=",
        "AQ==",
    ),
    *("2024-02-29", "10:00:00.123", "2024-02-29T10:00:00", "2024-02-29T10:00:00.123456", "2024-02-29T10:00:00.5Z"),
)


def _page_token(body: bytes) -> None:
    text = "\n".join(lines(body))
    first = _unless_refused(lambda: PageRequest(10, text).after_number)
    assert first is None or first >= 0
    token = read_token(text)
    assert read_token(token.text) == token


def _unless_refused(ask: Any) -> Any:
    try:
        return ask()
    except Invalid:
        return None


def _pattern(body: bytes) -> None:
    """A pattern of names, and a line for each name."""
    pattern, *names = lines(body)
    read = like(pattern)
    for name in names:
        is_like(name, read)


def _scope(body: bytes) -> None:
    """Patterns of a token, one a line; then when it expires."""
    *patterns, expires = lines(body)
    with suppress(ValueError):  # the fix
        _expiry(expires, AT)
    scope = TokenScope.parse(patterns)
    assert TokenScope.parse(scope.patterns).patterns == scope.patterns


def _named(text: str, form: str = '"{}"') -> tuple[bytes, ...]:
    return tuple(form.format(one).encode() for one in text.split())


_TYPE_WORDS = (
    b"TIMESTAMP(3) WITH LOCAL TIME ZONE",
    b" NOT NULL",
    *_named("ARRAY< MAP< MULTISET< ROW< DECIMAL(38,", "{}"),
)
_SCHEMA_WORDS = _named("fields primaryKeys partitionKeys options defaultValue comment description id name type")
_OPTION_WORDS = _named(
    "merge-engine=partial-update merge-engine=aggregation merge-engine=first-row sequence.field= "
    "fields. rowkind.field= .sequence-group= .aggregate-function= .default-value= .ignore-retract=true "
    "record.absent-columns=unchanged partition.expiration-time= primary-key=",
    "{}",
)
_ALTER_WORDS = _named(
    "action fieldNames newName dataType move comment newComment newDefaultValue key value setOption removeOption "
    "updateComment addColumn renameColumn dropColumn updateColumnType updateColumnNullability updateColumnComment "
    "updateColumnDefaultValue updateColumnPosition newDataType keepNullability newNullability fieldName "
    "referenceFieldName type AFTER"
)
_FILTER_WORDS = (b".eq.", b".in.(", b".like.%", b".is.null", b".is.not_null", b".gte.", b".ne.", b'"', b"\\%")
_COUNTED = (b"999999999999999999999", b"-0", b"1e308", b"NaN", b"-Infinity", b"0001-01-01", b"9999-12-31T24:00:00Z")

_SQL_WORDS = (
    *_named("CREATE TABLE IF EXISTS PRIMARY KEY( ENFORCED COMMENT DEFAULT METADATA WATERMARK PARTITIONED BY( ", "{} "),
    *_named("WITH( TBLPROPERTIES( USING DISTRIBUTED STRUCT< GENERATED LIKE -- /* */ ; `` '' \\' CONSTRAINT", " {}"),
)
TEXTS = {
    "statements": Target.of(_statements, words=(*_SQL_WORDS, *_TYPE_WORDS)),
    "types": Target.of(_type, KeyfoldError, TypeSyntaxError, words=_TYPE_WORDS),
    "schemas": Target.of(_schema, words=(*_SCHEMA_WORDS, *_TYPE_WORDS)),
    "options": Target.of(_options, words=_OPTION_WORDS),
    "alters": Target.of(_alter, words=(*_ALTER_WORDS, *_TYPE_WORDS)),
    "filters": Target.of(_filters, words=(*_FILTER_WORDS, *_COUNTED)),
    "keys": Target.of(_key, words=_COUNTED),
    "page_tokens": Target.of(_page_token),
    "patterns": Target.of(_pattern, words=(b"%", b"_", b"\\")),
    "scopes": Target.of(_scope, words=(b"`", b".*", b"*", b"90d", b"2027-01-31")),
    "simulations": Target.of(simulate_merge, words=(*_SCHEMA_WORDS, b'"records"', *_TYPE_WORDS)),
}
