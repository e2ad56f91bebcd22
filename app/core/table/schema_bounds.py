"""How much one table may declare: what is beyond that is refused before anything is worked out of it
(docs/sizing.md, Bounds).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from app.core.errors import About, Conflict, ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.hints import cut
from app.core.table.schema import Column, TableSchema
from app.core.types.datatype import walk_types
from app.core.types.kinds import Kind
from app.core.types.times import TIME_DIGITS

MOST_KEY_COLUMNS: Final = 100
MOST_OPTIONS: Final = 10_000
LONGEST_NAME: Final = 255  # characters, of a column or field; databases and tables have the same bound
LONGEST_OPTION_KEY: Final = 1024
LONGEST_OPTION: Final = 2**17
LONGEST_TYPE: Final = 2**18
# Largest schema as the catalog stores it. One request sends 1 MiB at most; comments can add more later.
MOST_SCHEMA_BYTES: Final = 2**22
# JSON values of a column, with room for all that it may say of itself.
_VALUES_OF_A_COLUMN: Final = 64
# The comma of DECIMAL(10, 2) is none between fields: so a field has up to this many commas.
_COMMAS_OF_A_FIELD: Final = 4
MOST_DATABASE_TEXT: Final = 2**20  # characters of all options of a database
_FEWER = "split the table: group the columns that are posted and read together, under the same primary key"


@dataclass(frozen=True)
class SchemaBounds:
    """The most that one table may declare; ``columns`` counts the fields inside columns as well."""

    columns: int = 2000

    def check_declared(self, body: Mapping[str, Any]) -> None:
        """Raise ``Invalid`` if ``body`` (Paimon's JSON of a schema, not read yet) declares more. What it costs to
        find out does not depend on what the body holds.
        """
        faults = [*islice(self._declared(body), 100)]
        if faults:
            raise Invalid(f"the table is not valid: {faults[0].message}", code=_code(faults), violations=faults)

    def _declared(self, body: Mapping[str, Any]) -> Iterator[Violation]:
        fields = body.get("fields")
        listed = fields if isinstance(fields, list) else []
        if len(listed) > self.columns:
            yield self._too_many_columns(len(listed))
        elif self._holds_more(body, listed):
            yield self._too_many_columns(None)
        else:
            yield from _long_names(listed)
        yield from _long_keys(body)
        yield from _too_many_options(body.get("options"))

    def _holds_more(self, body: Mapping[str, Any], fields: Sequence[Any]) -> bool:
        """Return whether the columns surely hold more fields than a table may have, or too much to find out."""
        if not _has_at_most(_VALUES_OF_A_COLUMN * self.columns + 2 * MOST_OPTIONS, body):
            return True
        commas = sum(text.count(",") for text in _type_texts(fields))
        return commas > _COMMAS_OF_A_FIELD * self.columns

    def _too_many_columns(self, columns: int | None) -> Violation:
        sent = "" if columns is None else f", the request declares {columns}"
        message = f"a table has at most {self.columns} columns and fields inside them{sent}"
        return Violation("/fields", FaultCode.TOO_MANY, message, _FEWER)

    def faults(self, schema: TableSchema, before: TableSchema | None = None) -> Iterator[Violation]:
        """Yield the faults of a parsed schema beyond the bounds. A table that exceeded them ``before`` may be altered,
        as long as it does not grow.
        """
        count = len(schema.declared_names)
        if count > max(self.columns, len(before.declared_names) if before else 0):
            yield self._too_many_columns(count)
        known = set() if before is None else set(before.declared_names)
        for name in dict.fromkeys(schema.declared_names):
            if len(name) > LONGEST_NAME and name not in known:
                yield _long_name(name, "/fields")
        size = _size(schema)
        if size > max(MOST_SCHEMA_BYTES, _size(before) if before else 0):
            message = f"the schema takes {size} bytes, at most {MOST_SCHEMA_BYTES} are kept"
            yield Violation("/fields", FaultCode.TOO_LONG, message, "shorten comments, descriptions and options")
        yield from _too_precise_times(schema, before)
        yield from _too_many_options(schema.options if before is None or schema.options != before.options else None)
        if len(schema.primary_key) > max(MOST_KEY_COLUMNS, len(before.primary_key) if before else 0):
            yield _too_many_keys("primaryKeys", len(schema.primary_key))


def _too_precise_times(schema: TableSchema, before: TableSchema | None) -> Iterator[Violation]:
    """TIME is kept in milliseconds, as Paimon keeps it: a column that promises more digits would refuse or cut them."""
    known = {} if before is None else {column.id: _time_digits(column) for column in before.columns}
    for place, column in enumerate(schema.columns):
        most = _time_digits(column)
        if most > max(TIME_DIGITS, known.get(column.id, 0)):
            message = f"column {column.name!r}: a TIME holds {TIME_DIGITS} digits of a second, not {most}"
            fix = f"declare TIME({TIME_DIGITS}), or STRING to hold more digits"
            yield Violation(f"/fields/{place}/type", FaultCode.OUT_OF_RANGE, message, fix, column=column.name)


def _time_digits(column: Column) -> int:
    return max(
        (data_type.precision or 0 for data_type in walk_types(column.type) if data_type.kind is Kind.TIME), default=0
    )


@dataclass(frozen=True)
class CatalogBounds:
    """The most databases and tables of a catalog, and what one table may declare."""

    databases: int = 10_000
    tables: int = 10_000
    table: SchemaBounds = SchemaBounds()

    def check_databases(self, count: int) -> None:
        """Raise ``Conflict`` if there are so many databases already."""
        _check_room(count, self.databases, "databases")

    def check_tables(self, count: int) -> None:
        """Raise ``Conflict`` if there are so many tables already."""
        _check_room(count, self.tables, "tables")


DEFAULT_BOUNDS: Final = CatalogBounds()


def _check_room(count: int, most: int, what: str) -> None:
    if count >= most:
        message = f"the catalog has {count} {what}, at most {most} are allowed"
        fix = f"drop {what} that are no longer needed, or use another service for the others"
        fault = Violation("", FaultCode.TOO_MANY, message, fix)
        raise Conflict(f"{message}; {fix}", code=ErrorCode.CATALOG_FULL, violations=[fault])


def _code(faults: Sequence[Violation]) -> ErrorCode:
    only_options = all(fault.about.option is not None for fault in faults)
    return ErrorCode.INVALID_OPTIONS if only_options else ErrorCode.INVALID_SCHEMA


def _has_at_most(most: int, body: object) -> bool:
    """Return whether ``body`` holds at most so many JSON values; stop counting beyond."""
    unseen: list[object] = [body]
    seen = 0
    while unseen:
        value = unseen.pop()
        inside: Iterable[object] = ()
        if isinstance(value, Mapping):
            seen, inside = seen + len(value), value.values()
        elif isinstance(value, list):
            seen, inside = seen + len(value), value
        if seen > most:
            return False
        unseen.extend(part for part in inside if isinstance(part, (Mapping, list)))
    return True


def _type_texts(fields: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of types in the columns' JSON, at any depth."""
    unseen: list[Any] = [field.get("type") for field in fields if isinstance(field, Mapping)]
    while unseen:
        value = unseen.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, (Mapping, list)):
            unseen += value.values() if isinstance(value, Mapping) else value


def _long_names(fields: Sequence[Any]) -> Iterator[Violation]:
    for place, field in enumerate(fields):
        if not isinstance(field, Mapping):
            continue
        name, kind = field.get("name"), field.get("type")
        if isinstance(name, str) and len(name) > LONGEST_NAME:
            yield _long_name(name, f"/fields/{place}/name")
        if isinstance(kind, str) and len(kind) > LONGEST_TYPE:
            message = f"the type has {len(kind)} characters, at most {LONGEST_TYPE} are read"
            yield Violation(f"/fields/{place}/type", FaultCode.TOO_LONG, message, "declare fewer fields in it")


def _long_name(name: str, pointer: str) -> Violation:
    message = f"the column name {cut(name)!r} has {len(name)} characters, at most {LONGEST_NAME} are allowed"
    return Violation(pointer, FaultCode.NAME_TOO_LONG, message, "choose a shorter name")


def _long_keys(body: Mapping[str, Any]) -> Iterator[Violation]:
    for member in ("primaryKeys", "partitionKeys"):
        names = body.get(member)
        if isinstance(names, list) and len(names) > MOST_KEY_COLUMNS:
            yield _too_many_keys(member, len(names))


def _too_many_keys(member: str, count: int) -> Violation:
    message = f"{member} names {count} columns, at most {MOST_KEY_COLUMNS} are allowed"
    return Violation(f"/{member}", FaultCode.TOO_MANY, message, "choose a key of fewer columns")


def _too_many_options(options: object) -> Iterator[Violation]:
    if not isinstance(options, Mapping):
        return
    if len(options) > MOST_OPTIONS:
        message = f"the table has {len(options)} options, at most {MOST_OPTIONS} are allowed"
        yield Violation("/options", FaultCode.TOO_MANY, message, "set fewer options", about=About(option=""))
    for key, text in islice(options.items(), MOST_OPTIONS):
        yield from long_option(str(key), text, "/options")


def options_faults(options: Mapping[str, str], pointer: str) -> Iterator[Violation]:
    """Yield the faults of a database's options, as a whole, beyond the bounds."""
    if len(options) > MOST_OPTIONS:
        message = f"the database would have {len(options)} options, at most {MOST_OPTIONS} are allowed"
        yield Violation(pointer, FaultCode.TOO_MANY, message, "set fewer options, or remove some")
    size = sum(len(key) + len(text) for key, text in options.items())
    if size > MOST_DATABASE_TEXT:
        message = f"the database's options would have {size} characters, at most {MOST_DATABASE_TEXT} are allowed"
        yield Violation(pointer, FaultCode.TOO_LONG, message, "set fewer options, or remove some")


def long_option(key: str, text: object, pointer: str) -> Iterator[Violation]:
    """Yield the fault of an option whose key or value is too long; ``pointer`` is that of the options."""
    where, about = f"{pointer}/{escape_pointer(cut(key))}", About(option=key)
    if len(key) > LONGEST_OPTION_KEY:
        message = (
            f"the option {cut(key)!r} has a key of {len(key)} characters, at most {LONGEST_OPTION_KEY} are allowed"
        )
        yield Violation(where, FaultCode.TOO_LONG, message, "name fewer columns in it", about=about)
    if isinstance(text, str) and len(text) > LONGEST_OPTION:
        message = f"option {cut(key)} has a value of {len(text)} characters, at most {LONGEST_OPTION} are allowed"
        yield Violation(where, FaultCode.TOO_LONG, message, "write a shorter value", about=about)


def _size(schema: TableSchema) -> int:
    return len(json.dumps(schema.to_json(), separators=(",", ":")))
