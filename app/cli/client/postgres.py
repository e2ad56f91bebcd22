"""A CREATE TABLE for the change events of a PostgreSQL table: types, key, order, and columns that events leave out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Final

from app.cli.client.endings import usage
from app.core.ddl.writer import table_ddl
from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.schema import TableSchema
from app.core.types.dialects import Dialect
from app.core.types.kinds import Kind

_COLUMNS: Final = """
SELECT a.attname, a.attnotnull, e.typtype = 'e' OR coalesce(i.typtype = 'e', false),
  format_type(e.oid, CASE WHEN t.typtype = 'd' AND t.typtypmod <> -1 THEN t.typtypmod ELSE a.atttypmod END)
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type e ON e.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type i ON i.oid = e.typelem AND e.typcategory = 'A'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY: Final = """
SELECT a.attname FROM pg_index i
JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(number, place) ON true
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.place
"""
_TABLE: Final = """
SELECT c.oid, n.nspname, c.relname, c.relreplident = 'f' FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_TYPE: Final = re.compile(
    r"(?P<name>[^([]+?)(?:\((?P<sizes>[-\d,]+)\))?(?P<zone> with(?:out)? time zone)?(?P<array>\[\])*"
)
_MOST_DIGITS: Final = 38
_CONNECT_SECONDS: Final = 10
_TIME_DIGITS: Final = 3
_MICROSECONDS: Final = 6


@dataclass(frozen=True)
class SourceTable:
    """A table of PostgreSQL; ``whole``: events of updates and deletes have whole rows (REPLICA IDENTITY FULL).
    ``unsent`` are the columns whose values no event has, with their types in PostgreSQL.
    """

    schema: str
    name: str
    columns: Mapping[str, str]
    key: Sequence[str]
    whole: bool
    unsent: Mapping[str, str]

    @property
    def ddl(self) -> str:
        """The CREATE TABLE statement for its events. Raise ``Failure`` if no table can take them."""
        if not self.key:
            raise usage(f"{self.schema}.{self.name} has no primary key, by which rows are updated and removed; add one")
        orders = chain(("lsn", "source_lsn"), (f"source_lsn_{number}" for number in count(2)))
        order = next(name for name in orders if name not in self.columns)
        fields = [
            {"name": name, "type": f"{data_type} NOT NULL" if name in self.key else data_type}
            for name, data_type in [*self.columns.items(), (order, Kind.BIGINT)]
        ]
        options = {
            "events.source": f"{self.schema}.{self.name}",
            f"fields.{order}.from-event": "source.lsn",
            "sequence.field": order,
            **({} if self.whole else _UNCHANGED),
        }
        try:
            schema = TableSchema.from_json({"fields": fields, "primaryKeys": [*self.key], "options": options})
            compile_plan(schema)
            return "".join(f"-- {line}\n" for line in self._notes) + table_ddl(self.name, schema, Dialect.FLINK)
        except Invalid as error:
            faults = "; ".join(f"{fault.message}: {fault.fix}" for fault in error.violations)
            raise usage(f"{self.schema}.{self.name} cannot be a table as it is: {faults or error.message}") from error

    @property
    def _notes(self) -> Sequence[str]:
        identity = "FULL: events have whole rows" if self.whole else "not FULL: values that did not change are left out"
        notes = [f"of {self.schema}.{self.name} in PostgreSQL; REPLICA IDENTITY is {identity}"]
        if self.unsent:
            names = ", ".join(f"{name} ({source_type})" for name, source_type in self.unsent.items())
            notes.append(
                f"always null, as Debezium sends no values of their types (include.unknown.datatypes): {names}"
            )
        return notes


_UNCHANGED: Final = {
    "merge-engine": "partial-update",
    "record.absent-columns": "unchanged",
    "partial-update.remove-record-on-delete": "true",
}


def source_table(address: str, name: str) -> SourceTable:
    """Return the table ``name`` (``schema.table``) of the database at ``address`` (a URI or string of libpq).

    Raise ``Failure``.
    """
    import psycopg  # noqa: PLC0415  # only where it is asked for

    try:
        with psycopg.connect(address, connect_timeout=_CONNECT_SECONDS) as connection:
            described = connection.execute(_TABLE, [name]).fetchone()
            if described is None:
                raise usage(f"there is no table {name!r} in the database; name it as SCHEMA.TABLE")
            oid, schema, table, whole = described
            found = connection.execute(_COLUMNS, [oid]).fetchall()
            columns = {name: column_type(declared, is_enum=is_enum) for name, _, is_enum, declared in found}
            unsent = {name: declared for name, _, is_enum, declared in found if not (is_enum or is_sent(declared))}
            key = [row[0] for row in connection.execute(_KEY, [oid])]
    except psycopg.Error as error:
        raise usage(f"the database cannot be read: {str(error).strip()}") from error
    return SourceTable(schema, table, columns, key, whole, unsent)


def column_type(source_type: str, *, is_enum: bool = False) -> str:
    """Return the type for the values that Debezium's connector sends of a PostgreSQL type; STRING for those sent as
    text.

    The PostgreSQL type is named as ``format_type`` names it.
    """
    match = _TYPE.fullmatch(source_type)
    if match is None:
        return Kind.STRING
    sizes = [int(size) for size in (match["sizes"] or "").split(",") if size]
    element = Kind.STRING if is_enum else _TYPES.get(_name(match), _always(Kind.STRING))(sizes)
    return f"ARRAY<{element}>" if match["array"] else element


def is_sent(source_type: str) -> bool:
    """Return whether Debezium's connector sends the values of a PostgreSQL type that is no enum."""
    match = _TYPE.fullmatch(source_type)
    return match is not None and _name(match) in _TYPES and not (match["array"] and _name(match) in _UNSENT_IN_ARRAYS)


def _name(match: re.Match[str]) -> str:
    """Return the type's name without sizes and brackets, with its words about a time zone."""
    return f"{match['name'].strip()}{match['zone'] or ''}"


def _always(kind: str) -> Callable[[Sequence[int]], str]:
    return lambda _: kind


def _numeric(sizes: Sequence[int]) -> str:
    precision, scale = (*sizes, 0)[:2] if sizes else (0, 0)
    return f"DECIMAL({precision}, {scale})" if 0 <= scale <= precision <= _MOST_DIGITS and sizes else Kind.STRING


def _time(sizes: Sequence[int]) -> str:
    """Return the type of a time; STRING if it has more digits than a TIME."""
    digits = sizes[0] if sizes else _MICROSECONDS
    return f"TIME({digits})" if digits <= _TIME_DIGITS else Kind.STRING


def _timestamp(words: str = "") -> Callable[[Sequence[int]], str]:
    return lambda sizes: f"TIMESTAMP({sizes[0] if sizes else _MICROSECONDS}){words}"


def _bits(sizes: Sequence[int]) -> str:
    return Kind.BOOLEAN if sizes == [1] else Kind.STRING


def _varying_bits(sizes: Sequence[int]) -> str:
    """Return the type of bits: without a bound their number is not sent, only their bytes are."""
    return Kind.STRING if sizes else Kind.BYTES


_TEXTS: Final = (
    *("text", "character varying", "character", '"char"', "uuid", "json", "jsonb", "xml", "tsvector"),
    *("inet", "cidr", "macaddr", "macaddr8", "point", "time with time zone"),
    *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
    *("citext", "hstore", "ltree", "geometry", "geography", "vector", "halfvec", "sparsevec"),
)
# What Debezium 3.6 was seen to send; the types of extensions are from its documents.
_TYPES: Final[Mapping[str, Callable[[Sequence[int]], Any]]] = {
    **dict.fromkeys(_TEXTS, _always(Kind.STRING)),
    "smallint": _always(Kind.SMALLINT),
    "integer": _always(Kind.INT),
    "bigint": _always(Kind.BIGINT),
    "oid": _always(Kind.BIGINT),
    "real": _always(Kind.FLOAT),
    "double precision": _always(Kind.DOUBLE),
    "numeric": _numeric,
    "money": _always("DECIMAL(19, 2)"),
    "boolean": _always(Kind.BOOLEAN),
    "bit": _bits,
    "bit varying": _varying_bits,
    "bytea": _always(Kind.BYTES),
    "date": _always(Kind.DATE),
    "time without time zone": _time,
    "timestamp without time zone": _timestamp(),
    "timestamp with time zone": _timestamp(" WITH LOCAL TIME ZONE"),
    "interval": _always(Kind.BIGINT),  # microseconds, unless interval.handling.mode says otherwise
}
_UNSENT_IN_ARRAYS: Final = frozenset({"interval", "money", "point", "bit", "bit varying"})
