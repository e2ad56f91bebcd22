"""Paimon's data types as values; ``app.core.types.parser`` reads and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from app.core.errors import FaultCode
from app.core.types.binary import BINARIES
from app.core.types.booleans import BOOLEANS
from app.core.types.entry import Entry
from app.core.types.kinds import Family, Kind
from app.core.types.nested import NESTED
from app.core.types.numbers import NUMBERS
from app.core.types.text import TEXTS
from app.core.types.times import TIMES
from app.core.types.values import Decode, Encode, ValueFault

_FAMILIES: Mapping[Kind, Entry] = {**BOOLEANS, **NUMBERS, **TEXTS, **BINARIES, **TIMES, **NESTED}
ENTRIES: Mapping[Kind, Entry] = {kind: _FAMILIES[kind] for kind in Kind}


@dataclass(frozen=True)
class Field:
    """One field of a ROW."""

    id: int
    name: str
    type: DataType
    description: str | None = None


@dataclass(frozen=True)
class DataType:
    """One type; ``kind`` names its entry in ``ENTRIES``.

    ``length`` is that of CHAR, VARCHAR, BINARY, VARBINARY; ``precision`` that of DECIMAL, TIME and the timestamps;
    ``element`` is the element of ARRAY and MULTISET and the value of MAP, ``key`` the key of MAP.
    """

    kind: Kind
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    key: DataType | None = None
    element: DataType | None = None
    fields: tuple[Field, ...] = ()

    def with_nullable(self, nullable: bool) -> DataType:
        """Return the same type, nullable or NOT NULL."""
        return replace(self, nullable=nullable)

    @property
    def entry(self) -> Entry:
        """The entry of its kind: the facts that hold for every type of the kind."""
        return ENTRIES[self.kind]

    @property
    def family(self) -> Family:
        """The family of its kind, for any size."""
        return self.entry.family

    @property
    def base_sql(self) -> str:
        """The type in Paimon's SQL spelling, without NOT NULL."""
        return self.entry.sql(self)

    @property
    def sql(self) -> str:
        """The type in Paimon's SQL spelling."""
        return self.base_sql if self.nullable else f"{self.base_sql} NOT NULL"

    @property
    def spark(self) -> str:
        """The type as which Spark reads the values of a run."""
        return self.entry.spark(self)

    @property
    def decoder(self) -> Decode:
        """A function from a JSON value (numbers with a fraction may be Decimal) to a value of the type.

        It raises ``ValueFault``.
        """
        return _decoder(self)

    @property
    def encoder(self) -> Encode:
        """A function from a value of the type (or None) to its JSON form."""
        return _encoder(self)

    @property
    def text_decoder(self) -> Callable[[str], Any]:
        """A function from the text of a scalar (in a URL, a default, a map's member name) to its value."""
        return _text_decoder(self)

    @property
    def legal_key(self) -> bool:
        """Whether a primary or partition key may have this type."""
        return self.entry.hashed is not None

    @property
    def comparable(self) -> bool:
        """Whether values have an order: legal in ``sequence.field``, sequence groups, max and min."""
        return self.entry.ordered

    @property
    def numeric(self) -> bool:
        """Whether values are numbers."""
        return self.family in (Family.INTEGER, Family.FLOATING, Family.DECIMAL)

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

    @property
    def map_types(self) -> tuple[DataType, DataType]:
        """Key and value of a MAP; element and count of a MULTISET."""
        return (self.element_type, _COUNT) if self.key is None else (self.key, self.element_type)


_COUNT = DataType(Kind.INT, nullable=False)


@lru_cache(maxsize=4096)
def _decoder(data_type: DataType) -> Decode:
    decode = data_type.entry.decode(data_type)
    if data_type.nullable:
        return lambda value: None if value is None else decode(value)

    def decode_not_null(value: Any) -> Any:
        if value is None:
            raise ValueFault(FaultCode.NULL_IN_NOT_NULL, f"null in a {data_type.sql} column", "send a value")
        return decode(value)

    return decode_not_null


@lru_cache(maxsize=4096)
def _text_decoder(data_type: DataType) -> Callable[[str], Any]:
    decode, from_text = data_type.with_nullable(False).decoder, data_type.entry.from_text
    return lambda text: decode(from_text(text))


@lru_cache(maxsize=4096)
def _encoder(data_type: DataType) -> Encode:
    encode = data_type.entry.encode(data_type)
    return lambda value: None if value is None else encode(value)


def walk_types(data_type: DataType) -> Iterator[DataType]:
    """Yield ``data_type`` and every type inside it."""
    yield data_type
    for inner in data_type.nested:
        yield from walk_types(inner)


def field_ids(data_type: DataType) -> frozenset[int]:
    """Return the ids of all ROW fields inside ``data_type``."""
    return frozenset(field.id for inner in walk_types(data_type) for field in inner.fields)


def highest_field_id(data_type: DataType) -> int:
    """Return the largest id of a ROW field inside ``data_type``, -1 if there is none."""
    return max(field_ids(data_type), default=-1)
