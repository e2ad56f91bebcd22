"""The origin of a change event: the source table, as each format names it (``events.source``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec


@dataclass(frozen=True)
class Origin:
    """A table of a source; ``parts`` are its database, schema and name, without those that the event lacks."""

    parts: tuple[str, ...]

    @property
    def names(self) -> Sequence[str]:
        """The names by which a table may refer to it: ``orders``, ``inventory.orders`` or ``shop.inventory.orders``."""
        return [".".join(self.parts[-count:]) for count in range(1, len(self.parts) + 1)]

    @property
    def shown(self) -> str:
        """The name in messages: with its schema, or with its database if the source has no schemas."""
        return ".".join(self.parts[-2:])

    def feeds(self, table: str, declared: Sequence[str]) -> bool:
        """Return whether a table takes its events: one that declares ``events.source``, or else has its name."""
        return any(name in self.names for name in declared or (table,))


class _Shape(Protocol):
    """A change event; only its origin is decoded."""

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""


class _Source(msgspec.Struct):
    """``source`` of Debezium's envelope; MongoDB has collections."""

    db: str | None = None
    schema: str | None = None
    table: str | None = None
    collection: str | None = None


class _Flat(msgspec.Struct):
    """A row of ExtractNewRecordState: ``add.fields`` can be ``table`` or ``source.table``."""

    db: str | None = msgspec.field(default=None, name="__db")
    source_db: str | None = msgspec.field(default=None, name="__source_db")
    schema: str | None = msgspec.field(default=None, name="__schema")
    source_schema: str | None = msgspec.field(default=None, name="__source_schema")
    table: str | None = msgspec.field(default=None, name="__table")
    source_table: str | None = msgspec.field(default=None, name="__source_table")
    collection: str | None = msgspec.field(default=None, name="__collection")
    source_collection: str | None = msgspec.field(default=None, name="__source_collection")

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""
        table = self.table or self.source_table or self.collection or self.source_collection
        return self.db or self.source_db, self.schema or self.source_schema, table


# A row without an envelope may have a column ``payload`` with such a value.
_Column = str | int | float | bool | list[Any] | None


class _Envelope(_Flat):
    """Debezium's envelope; a flat row, which may come instead, has no ``source``."""

    source: _Source | None = None

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""
        if self.source is None:
            return super().parts()
        return self.source.db, self.source.schema, self.source.table or self.source.collection


class _Debezium(_Envelope):
    """The envelope, with or without the wrapper of Kafka Connect's JSON converter."""

    payload: _Envelope | _Column = None

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""
        own = super().parts()
        return self.payload.parts() if isinstance(self.payload, _Envelope) and not own[-1] else own


class _FlatDebezium(_Flat):
    payload: _Flat | _Column = None

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""
        own = super().parts()
        return self.payload.parts() if isinstance(self.payload, _Flat) and not own[-1] else own


class _CloudEvent(msgspec.Struct):
    iodebeziumdb: str | None = None
    iodebeziumschema: str | None = None
    iodebeziumtable: str | None = None
    iodebeziumcollection: str | None = None

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""
        return self.iodebeziumdb, self.iodebeziumschema, self.iodebeziumtable or self.iodebeziumcollection


class _Statement(msgspec.Struct):
    """A message of Canal, an event of Maxwell."""

    database: str | None = None
    table: str | None = None

    def parts(self) -> Sequence[str | None]:
        """Return the database, the schema and the table."""
        return self.database, None, self.table


class Origins:
    """Reads the origins of the events of one format."""

    def __init__(self, shape: type[_Shape]) -> None:
        self._shape = shape
        self._decoder = msgspec.json.Decoder(shape)

    def origin(self, event: Mapping[str, Any]) -> Origin | None:
        """Return the origin of a parsed event; None if it has none."""
        try:
            return _origin(msgspec.convert(event, self._shape))
        except ValueError:  # of another shape, or a name is half a surrogate pair
            return None

    def origin_of_text(self, text: bytes | msgspec.Raw) -> Origin | None:
        """Return the origin of an event; None if it has none, or the text is not an event."""
        try:
            return _origin(self._decoder.decode(text))
        except (ValueError, RecursionError):
            return None


def _origin(parsed: _Shape) -> Origin | None:
    parts = parsed.parts()
    return _known(*parts) if parts[-1] else None


@lru_cache(maxsize=1024)
def _known(*parts: str | None) -> Origin:
    """Return one shared object for equal parts: a body has thousands of events of a few origins."""
    return Origin(tuple(part for part in parts if part))


DEBEZIUM: Final = Origins(_Debezium)
FLAT_DEBEZIUM: Final = Origins(_FlatDebezium)
CLOUDEVENT: Final = Origins(_CloudEvent)
STATEMENT: Final = Origins(_Statement)
