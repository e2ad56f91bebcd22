"""Statements compiled once for all catalogs of a test run.

SQLAlchemy keeps compiled statements per engine, which lives as long as a service; tests open an engine for each fresh
catalog, and would spend a third of their time on compiling the same statements again.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_COMPILED: LRUCache[object, object] = LRUCache(2000)


class SharedSQLite(SQLiteDialect_pysqlite):
    """SQLite's dialect, equal to every other one of this class: compiled statements are found by their dialect."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


def share_compiled_statements() -> None:
    """From now on all engines for SQLite share what they compile."""
    registry.register("sqlite", __name__, SharedSQLite.__name__)
    sa.event.listen(sa.Engine, "engine_connect", _share)


def _share(connection: sa.Connection) -> None:
    if isinstance(connection.dialect, SharedSQLite):
        connection.execution_options(compiled_cache=_COMPILED)
