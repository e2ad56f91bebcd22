"""A table guessed from sample records: columns, types and the key, for the user to check."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from app.core.ddl.writer import table_ddl
from app.core.errors import Invalid
from app.core.plan.records.record_decoder import KIND_MEMBER
from app.core.table.schema import TableSchema
from app.core.table.schema_bounds import DEFAULT_BOUNDS
from app.core.types.dialects import Dialect
from app.core.types.kinds import Kind
from app.core.types.nested import quote
from app.services.bodies.json_bodies import json_text, parse_json
from app.services.tables.tables import DEEPEST_TYPE

MOST_RECORDS: Final = 10_000
# At most this many columns are guessed, and as many fields of the objects in a column.
MOST_COLUMNS: Final = 1_000
_OF_KEYS: Final = re.compile(r"(?:.*_)?(?:id|key|code|sku|uuid)", re.IGNORECASE)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?")
_NUMBER: Final = re.compile(r"-?\d{1,18}\.(\d{1,10})")


@dataclass(frozen=True)
class GuessedColumn:
    """A column: the type that all of its values have, an example, and how many records lack it or have null."""

    name: str
    type: str
    example: str
    missing: int


@dataclass(frozen=True)
class Guess:
    """A table as SQL, and the basis of the guess."""

    ddl: str
    columns: Sequence[GuessedColumn]
    key: str
    records: int


def guessed(name: str, sample: str) -> Guess:
    """Return the table whose records ``sample`` shows: a list in JSON, ``{"records": […]}``, or one record a line.

    Raise ``Invalid`` for a malformed sample, or one of an impossible table.
    """
    records = _records(sample)
    _check_depth(records)
    members = _members(records)
    members.pop(KIND_MEMBER, None)
    if not members:
        raise Invalid("the records have no columns; paste some that have")
    columns = [_column(name, values, len(records)) for name, values in members.items()]
    key = _key(columns, records)
    fields = [
        {"id": place, "name": column.name, "type": f"{column.type} NOT NULL" if column.name == key else column.type}
        for place, column in enumerate(columns)
    ]
    options = _options(records, key)
    body = {"fields": fields, "primaryKeys": [key], "options": options}
    DEFAULT_BOUNDS.table.check_declared(body)
    schema = TableSchema.from_json(body)
    return Guess(table_ddl(name, schema, Dialect.FLINK), columns, key, len(records))


def _records(sample: str) -> list[Mapping[str, Any]]:
    parsed = _parsed(sample)
    if isinstance(parsed, dict):
        parsed = parsed["records"] if isinstance(parsed.get("records"), list) else [parsed]
    if not isinstance(parsed, list) or not parsed or not all(isinstance(value, dict) for value in parsed):
        raise Invalid('this is no sample of records; paste [{"id": 1, …}, …], or one record a line')
    if len(parsed) > MOST_RECORDS:
        raise Invalid(f"a sample has at most {MOST_RECORDS} records; paste fewer")
    return parsed


def _parsed(sample: str) -> object:
    try:
        return parse_json(sample.encode("utf-8", "surrogatepass"))
    except Invalid:
        lines = [line for line in sample.split("\n") if line.strip()]  # texts in JSON may hold all other ends of lines
        if len(lines) < 2 or not lines[0].lstrip().startswith("{") or not lines[0].rstrip().endswith("}"):
            raise
    return [_line(number, line) for number, line in enumerate(lines, 1)]


def _line(number: int, line: str) -> object:
    try:
        return parse_json(line.encode("utf-8", "surrogatepass"))
    except Invalid as invalid:
        raise Invalid(f"line {number} of the sample: {invalid.message}") from invalid


def _check_depth(records: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``Invalid`` for values that are nested deeper than any type."""
    level: Sequence[Any] = records
    for _ in range(DEEPEST_TYPE + 1):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise Invalid(f"a value of the sample is nested more than {DEEPEST_TYPE} levels deep; flatten the records")


def _inside(value: object) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _members(objects: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the non-null values of each member. Raise ``Invalid`` for too many members."""
    columns: dict[str, list[Any]] = {}
    for item in objects:
        for name, value in item.items():
            values = columns.setdefault(name, [])
            if value is not None:
                values.append(value)
        if len(columns) > MOST_COLUMNS:
            raise Invalid(
                f"the records, or objects in them, have more than {MOST_COLUMNS} columns; paste narrower ones"
            )
    return columns


def _column(name: str, values: Sequence[Any], records: int) -> GuessedColumn:
    return GuessedColumn(name, type_of(values), json_text(values[0]) if values else "", records - len(values))


def type_of(values: Sequence[Any]) -> str:
    """Return the narrowest type that takes all ``values``; STRING if no type does, or if there are no values."""
    if not values:
        return Kind.STRING
    return next((data_type for guess in _GUESSES if (data_type := guess(values)) is not None), Kind.STRING)


def _boolean(values: Sequence[Any]) -> str | None:
    return Kind.BOOLEAN if all(isinstance(value, bool) for value in values) else None


def _whole(values: Sequence[Any]) -> str | None:
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return None
    return Kind.BIGINT if all(-(2**63) <= value < 2**63 for value in values) else "DECIMAL(38, 0)"


def _number(values: Sequence[Any]) -> str | None:
    return (
        Kind.DOUBLE
        if all(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values)
        else None
    )


def _decimal(values: Sequence[Any]) -> str | None:
    matches = _matched(_NUMBER, values)
    return None if matches is None else f"DECIMAL(18, {max(len(match[1]) for match in matches)})"


def _date(values: Sequence[Any]) -> str | None:
    return (
        Kind.DATE
        if all(isinstance(value, str) and len(value) == 10 and _reads(date.fromisoformat, value) for value in values)
        else None
    )


def _timestamp(values: Sequence[Any]) -> str | None:
    matches = _matched(_INSTANT, values)
    if matches is None or not all(_reads(datetime.fromisoformat, match[0]) for match in matches):
        return None
    digits = max(len(match[1] or "") for match in matches)
    precision = next(digits_allowed for digits_allowed in (3, 6, 9) if digits <= digits_allowed)
    zoned = {match[2] is not None for match in matches}
    if len(zoned) == 2:
        return None
    return f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE" if True in zoned else f"TIMESTAMP({precision})"


def _list(values: Sequence[Any]) -> str | None:
    if not all(isinstance(value, list) for value in values):
        return None
    return f"ARRAY<{type_of([inner for value in values for inner in value if inner is not None])}>"


def _object(values: Sequence[Any]) -> str | None:
    """Return a ROW type with the members of all objects."""
    if not all(isinstance(value, dict) and value for value in values):
        return None
    return f"ROW<{', '.join(f'{quote(name)} {type_of(inner)}' for name, inner in _members(values).items())}>"


_GUESSES: Final[tuple[Callable[[Sequence[Any]], str | None], ...]] = (
    *(_boolean, _whole, _number, _decimal, _date, _timestamp),
    *(_list, _object),
)


def _matched(pattern: re.Pattern[str], values: Iterable[Any]) -> list[re.Match[str]] | None:
    matches = [pattern.fullmatch(value) if isinstance(value, str) else None for value in values]
    matched = [match for match in matches if match is not None]
    return matched if len(matched) == len(matches) else None


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _key(columns: Sequence[GuessedColumn], records: Sequence[Mapping[str, Any]]) -> str:
    """Return the first column with the name of a key that every record has, else one with distinct values, else the
    first.
    """
    whole = [
        column.name
        for column in columns
        if not column.missing and column.type.split("<")[0] not in (Kind.ARRAY, Kind.ROW, Kind.DOUBLE)
    ]
    named = [name for name in whole if _OF_KEYS.fullmatch(name)]
    apart = [name for name in whole if len({str(record[name]) for record in records}) == len(records)]
    return (named + apart + whole + [columns[0].name])[0]


def _options(records: Sequence[Mapping[str, Any]], key: str) -> dict[str, str]:
    """Return the options for partial-update if records of one key have values in different columns."""
    again = any(count > 1 for count in Counter(str(record.get(key)) for record in records).values())
    name_sets = {frozenset(name for name, value in record.items() if value is not None) for record in records}
    if not again or len(name_sets) < 2:
        return {}
    absent = {frozenset(record) for record in records}
    return {"merge-engine": "partial-update"} | ({"record.absent-columns": "unchanged"} if len(absent) > 1 else {})
