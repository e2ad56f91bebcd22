"""Column types that behave the same on SQLite and PostgreSQL."""

# ruff: noqa: ARG002 - SQLAlchemy passes a dialect to every type, few ask which one it is

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.core.errors import DamagedCatalog

E = TypeVar("E", bound=StrEnum)
V = TypeVar("V")


def name_type() -> TypeEngine[str]:
    """Return text that sorts by code point on both databases, so that pages of names come in one order everywhere."""
    return sa.String().with_variant(sa.String(collation="C"), "postgresql")


def table_id(*, primary_key: bool = False) -> sa.Column[str]:
    """Return the foreign key of a row to its table."""
    return sa.Column(
        "table_id", sa.String, sa.ForeignKey("tables.id", ondelete="CASCADE"), nullable=False, primary_key=primary_key
    )


def checksum() -> sa.Column[str]:
    """Return the column for a checksum (``app.catalog.shared.checksums``); null in rows from before migration 0015."""
    return sa.Column("checksum", sa.String)


def digests() -> tuple[sa.Column[str], sa.Column[bytes]]:
    """Return the columns for the digests of a file; null for files that were written before digests were computed."""
    return sa.Column("digest", sa.String), sa.Column("block_digests", sa.LargeBinary)


class _Checked(TypeDecorator[V]):
    """Reads stored values; a malformed one is damage of the catalog, not a fault of the caller."""

    __abstract__ = True
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Return SQLAlchemy's processor, which raises ``DamagedCatalog`` for malformed values."""
        read = super().result_processor(dialect, coltype)

        def checked(value: Any) -> Any:
            if value is None or read is None:
                return value
            try:
                return read(value)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise DamagedCatalog(f"a column of type {type(self).__name__} cannot be read") from error

        return checked


class UtcTime(_Checked[datetime]):
    """An aware time in UTC. SQLite has no time zones, so there it is stored without one."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return ``value`` in UTC; a naive time is a bug of the program, since its instant is unknown."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the catalog stores aware times only, got {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return ``value`` as an aware time in UTC, in every time zone of the database session."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class JsonText(_Checked[Any]):
    """A JSON value as plain text: PostgreSQL's jsonb refuses U+0000 and lone surrogates, which texts may hold."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return ``value`` written with ASCII escapes, or null."""
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value that was written, or null."""
        return None if value is None else json.loads(value)


class EnumText(_Checked[E], Generic[E]):
    """A member of ``kind``, stored as its text."""

    impl = sa.String
    cache_ok = True

    def __init__(self, kind: type[E]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        """Return the member's text."""
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        """Return the member whose text was stored."""
        return None if value is None else self.kind(value)
