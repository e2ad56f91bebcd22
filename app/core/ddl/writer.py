"""A table's schema as CREATE TABLE: what is written here reads as the same schema, but for the ids of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from app.core.errors import FaultCode, Invalid, Violation
from app.core.hints import some_of
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import DataType
from app.core.types.dialects import SPARK_WORDS, Dialect, quoted_text
from app.core.types.kinds import Family, Kind
from app.core.types.nested import quote

_LITERAL: Final = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?|TRUE|FALSE")
_MICROSECONDS: Final = 6
_SPARKS_OWN: Mapping[Kind, str] = {SPARK_WORDS[word]: word for word in (Kind.BINARY, Kind.TIMESTAMP, "TIMESTAMP_NTZ")}
_NOT_IN_SPARK: Final = (Kind.MULTISET, Kind.TIME, Kind.BINARY, Kind.VARBINARY)
_FIX: Final = "request the text with dialect=flink"


def table_ddl(name: str, schema: TableSchema, dialect: Dialect) -> str:
    """Return the statement that makes a table with this schema.

    Raise ``Invalid`` with every column that the dialect cannot express.
    """
    faults = [*_unsayable(schema)] if dialect is Dialect.SPARK else []
    if faults:
        raise Invalid(f"{faults[0].message}; {_FIX}", violations=faults)
    return _STATEMENTS[dialect](name, schema)


def _flink(name: str, schema: TableSchema) -> str:
    key = ", ".join(map(quote, schema.primary_key))
    lines = [*_columns(schema, Dialect.FLINK), f"PRIMARY KEY ({key}) NOT ENFORCED"]
    clauses = [*_comment(schema, Dialect.FLINK), *_partitions(schema)]
    if schema.options:
        clauses.append(f"WITH (\n{_pairs(schema.options, Dialect.FLINK)}\n)")
    return _statement(name, lines, clauses)


def _spark(name: str, schema: TableSchema) -> str:
    options = {"primary-key": ",".join(schema.primary_key), **schema.options}
    clauses = ["USING paimon", *_partitions(schema), *_comment(schema, Dialect.SPARK)]
    clauses.append(f"TBLPROPERTIES (\n{_pairs(options, Dialect.SPARK)}\n)")
    return _statement(name, [*_columns(schema, Dialect.SPARK)], clauses)


_STATEMENTS: Mapping[Dialect, Callable[[str, TableSchema], str]] = {Dialect.FLINK: _flink, Dialect.SPARK: _spark}


def _statement(name: str, lines: list[str], clauses: list[str]) -> str:
    inside = ",\n".join(f"  {line}" for line in lines)
    return "\n".join([f"CREATE TABLE {quote(name)} (", inside, ")", *clauses]) + ";\n"


def _columns(schema: TableSchema, dialect: Dialect) -> Iterator[str]:
    for column in schema.columns:
        parts = [quote(column.name), _type(column.type, dialect)]
        if column.default is not None:
            parts.append(f"DEFAULT {_default(column, column.default, dialect)}")
        if column.description is not None:
            parts.append(f"COMMENT {quoted_text(column.description, dialect)}")
        yield " ".join(parts)


def _default(column: Column, text: str, dialect: Dialect) -> str:
    value = text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "'" else text
    bare = _LITERAL.fullmatch(value) and (column.type.numeric or column.type.family is Family.BOOLEAN)
    return value if bare else quoted_text(value, dialect)


def _comment(schema: TableSchema, dialect: Dialect) -> list[str]:
    return [] if schema.comment is None else [f"COMMENT {quoted_text(schema.comment, dialect)}"]


def _partitions(schema: TableSchema) -> list[str]:
    return [f"PARTITIONED BY ({', '.join(map(quote, schema.partition_keys))})"] if schema.partition_keys else []


def _pairs(options: Mapping[str, str], dialect: Dialect) -> str:
    pairs = (f"  {quoted_text(key, dialect)} = {quoted_text(value, dialect)}" for key, value in options.items())
    return ",\n".join(pairs)


def _type(data_type: DataType, dialect: Dialect) -> str:
    spelt = _spelt(data_type, dialect)
    return spelt if data_type.nullable else f"{spelt} NOT NULL"


def _spelt(data_type: DataType, dialect: Dialect) -> str:
    if data_type.family is Family.ROW:
        return _row(data_type, dialect)
    if data_type.nested:
        return f"{data_type.kind}<{', '.join(_type(inner, dialect) for inner in data_type.nested)}>"
    spark_name = _SPARKS_OWN.get(data_type.kind) if dialect is Dialect.SPARK else None
    return spark_name or data_type.base_sql


def _row(data_type: DataType, dialect: Dialect) -> str:
    word, colon, comment = ("STRUCT", ":", " COMMENT") if dialect is Dialect.SPARK else (Kind.ROW, "", "")
    fields = []
    for field in data_type.fields:
        described = "" if field.description is None else f"{comment} {quoted_text(field.description, dialect)}"
        fields.append(f"{quote(field.name)}{colon} {_type(field.type, dialect)}{described}")
    return f"{word}<{', '.join(fields)}>"


def _unsayable(schema: TableSchema) -> Iterator[Violation]:
    """Yield what Spark's SQL cannot say of the schema."""
    for column in schema.columns:
        reason = _reason(column.type)
        if reason is not None:
            message = f"Spark's SQL has no syntax for {reason} (column {column.name!r})"
            yield Violation("", FaultCode.UNSUPPORTED_TYPE, message, _FIX, column=column.name)
    odd = [name for name in schema.primary_key if "," in name or name != name.strip()]
    if odd:
        message = f"Spark's SQL names the primary key in an option, which cannot hold {some_of(odd)}"
        yield Violation("", FaultCode.ILLEGAL_NAME, message, _FIX)


def _reason(data_type: DataType) -> str | None:
    if data_type.kind in _NOT_IN_SPARK:
        return data_type.base_sql
    if data_type.family is Family.TIMESTAMP and data_type.precision != _MICROSECONDS:
        return data_type.base_sql
    if data_type.family is not Family.ROW and not all(inner.nullable for inner in data_type.nested):
        return f"NOT NULL inside {data_type.base_sql}"
    return next((reason for inner in data_type.nested if (reason := _reason(inner))), None)
