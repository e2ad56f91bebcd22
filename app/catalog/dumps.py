"""Dumps: the whole catalog at one moment, as lines of JSON that SQLite and PostgreSQL both load."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from app.catalog.shared.transaction import Transaction

_VERSION_TABLE = "alembic_version"  # Alembic's table of the revision, which a dump has in its own head
_ROWS_AT_ONCE = 1000


def dump(transaction: Transaction) -> Iterator[str]:
    """Yield for each table a line with its name and columns, then one for each row, parents before children.

    The columns are those of the database, not of this version's models: a dump has the revision of its catalog.
    """
    for table in _tables(transaction):
        yield json.dumps({"table": table.name, "columns": [column.name for column in table.columns]})
        for row in transaction.execute(sa.select(table)):
            yield json.dumps([_json_value(value) for value in row], ensure_ascii=True)


def load(transaction: Transaction, lines: Iterable[str]) -> None:
    """Fill a catalog that is at the dump's revision and has no rows. Raise ``ValueError`` for lines that are not of a
    dump.
    """
    tables = {table.name: table for table in _tables(transaction)}
    table: sa.Table | None = None
    names: list[str] = []
    rows: list[dict[str, Any]] = []

    def insert() -> None:
        if rows and table is not None:
            transaction.execute(table.insert(), rows)
        rows.clear()

    for line in lines:
        parsed = json.loads(line)
        if isinstance(parsed, dict):
            insert()
            table, names = tables.get(parsed["table"]), parsed["columns"]
            if table is None:
                raise ValueError(f"the catalog has no table {parsed['table']!r}")
            continue
        if table is None:
            raise ValueError("a row comes before the name of its table")
        columns = [table.columns[name] for name in names]
        rows.append({c.name: _read(c.type, value) for c, value in zip(columns, parsed, strict=True)})
        if len(rows) == _ROWS_AT_ONCE:
            insert()
    insert()


def _tables(transaction: Transaction) -> list[sa.Table]:
    schema = sa.MetaData()
    schema.reflect(transaction.connection)
    return [table for table in schema.sorted_tables if table.name != _VERSION_TABLE]


def _json_value(value: Any) -> Any:
    """Return a time in UTC without its zone, as in SQLite, and bytes in base64."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _read(kind: sa.types.TypeEngine[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, sa.DateTime):
        time = datetime.fromisoformat(value)
        return time.replace(tzinfo=UTC) if kind.timezone else time
    return base64.b64decode(value) if isinstance(kind, sa.LargeBinary) else value
