"""Paimon's data types as values; ``app.core.types.parser`` reads and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Field:
    """One field of a ROW."""

    id: int
    name: str
    type: DataType
    description: str | None = None


@dataclass(frozen=True)
class DataType:
    """One type; ``kind`` names its entry in ``KINDS``.

    ``length`` is that of CHAR, VARCHAR, BINARY, VARBINARY; ``precision`` that of DECIMAL, TIME and the timestamps;
    ``element`` is the element of ARRAY and MULTISET and the value of MAP, ``key`` the key of MAP.
    """

    kind: str
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    key: DataType | None = None
    element: DataType | None = None
    fields: tuple[Field, ...] = ()

    def with_nullable(self, nullable: bool) -> DataType:
        """The same type, nullable or NOT NULL."""
        return replace(self, nullable=nullable)

    @property
    def base_sql(self) -> str:
        """The type in Paimon's SQL spelling, without NOT NULL."""
        return KINDS[self.kind].sql(self)

    @property
    def sql(self) -> str:
        """The type in Paimon's SQL spelling."""
        return self.base_sql if self.nullable else f"{self.base_sql} NOT NULL"

    @property
    def spark(self) -> str:
        """The Spark SQL type that holds the values in a run."""
        return KINDS[self.kind].spark(self)

    @property
    def legal_key(self) -> bool:
        """Whether a primary or partition key may have this type (merge-semantics §6.1.1)."""
        return not KINDS[self.kind].nested

    @property
    def comparable(self) -> bool:
        """Whether values have an order: legal in ``sequence.field``, sequence groups, max and min (merge-semantics
        §3.1).
        """
        return not KINDS[self.kind].nested

    @property
    def nested(self) -> tuple[DataType, ...]:
        """The types directly inside this one."""
        inner = (self.key, self.element, *(field.type for field in self.fields))
        return tuple(t for t in inner if t is not None)

    @property
    def element_type(self) -> DataType:
        """The element of an ARRAY or MULTISET, the value of a MAP."""
        assert self.element is not None
        return self.element

    @property
    def key_type(self) -> DataType:
        """The key of a MAP."""
        assert self.key is not None
        return self.key


@dataclass(frozen=True)
class Kind:
    """What one kind of type looks like: its SQL text, the Spark type that holds it, whether it contains other types."""

    sql: Callable[[DataType], str]
    spark: Callable[[DataType], str]
    nested: bool = False


def _same(name: str) -> Kind:
    return Kind(lambda _: name, lambda _: name)


def quote(name: str) -> str:
    """``name`` as a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _row_sql(data_type: DataType) -> str:
    return "ROW<" + ", ".join(f"{quote(f.name)} {f.type.sql}" for f in data_type.fields) + ">"


def _row_spark(data_type: DataType) -> str:
    return "STRUCT<" + ", ".join(f"{quote(f.name)}: {f.type.spark}" for f in data_type.fields) + ">"


KINDS: Mapping[str, Kind] = {
    **{
        name: _same(name)
        for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "STRING")
    },
    "DECIMAL": Kind(lambda t: f"DECIMAL({t.precision}, {t.scale})", lambda t: f"DECIMAL({t.precision},{t.scale})"),
    "CHAR": Kind(lambda t: f"CHAR({t.length})", lambda _: "STRING"),
    "VARCHAR": Kind(lambda t: f"VARCHAR({t.length})", lambda _: "STRING"),
    "BINARY": Kind(lambda t: f"BINARY({t.length})", lambda _: "BINARY"),
    "VARBINARY": Kind(lambda t: f"VARBINARY({t.length})", lambda _: "BINARY"),
    "BYTES": Kind(lambda _: "BYTES", lambda _: "BINARY"),
    # Milliseconds of the day, as Paimon itself keeps TIME: every Spark version reads it.
    "TIME": Kind(lambda t: f"TIME({t.precision})", lambda _: "INT"),
    "TIMESTAMP": Kind(lambda t: f"TIMESTAMP({t.precision})", lambda _: "TIMESTAMP_NTZ"),
    "TIMESTAMP_LTZ": Kind(lambda t: f"TIMESTAMP({t.precision}) WITH LOCAL TIME ZONE", lambda _: "TIMESTAMP"),
    "ARRAY": Kind(lambda t: f"ARRAY<{t.element_type.sql}>", lambda t: f"ARRAY<{t.element_type.spark}>", nested=True),
    "MULTISET": Kind(
        lambda t: f"MULTISET<{t.element_type.sql}>", lambda t: f"MAP<{t.element_type.spark}, INT>", nested=True
    ),
    "MAP": Kind(
        lambda t: f"MAP<{t.key_type.sql}, {t.element_type.sql}>",
        lambda t: f"MAP<{t.key_type.spark}, {t.element_type.spark}>",
        nested=True,
    ),
    "ROW": Kind(_row_sql, _row_spark, nested=True),
}


def walk_types(data_type: DataType) -> Iterator[DataType]:
    """``data_type`` and every type inside it."""
    yield data_type
    for inner in data_type.nested:
        yield from walk_types(inner)


def highest_field_id(data_type: DataType) -> int:
    """The largest id of a ROW field inside ``data_type``, -1 if there is none."""
    return max((f.id for inner in walk_types(data_type) for f in inner.fields), default=-1)
