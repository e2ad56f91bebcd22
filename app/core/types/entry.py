"""The properties of one kind of type, all in one entry."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, Encode

if TYPE_CHECKING:  # types look their entries up
    from app.core.types.datatype import DataType

MAX_LENGTH = 2_147_483_647

# What Spark's xxhash64 reads of values that Java holds as an int and as a long.
int_bytes: Callable[[int], bytes] = struct.Struct("<i").pack
long_bytes: Callable[[int], bytes] = struct.Struct("<q").pack

# Whether the new type (second) holds every value of the old one (first).
Widening = Callable[["DataType", "DataType"], bool]


def always(_old: DataType, _new: DataType) -> bool:
    """Return a widening to any type of the kind."""
    return True


def longer(old: DataType, new: DataType) -> bool:
    """Return a widening to a type of at least the same length."""
    return (new.length or 0) >= (old.length or 0)


def as_it_is(value: Any) -> Any:
    """Return the value itself."""
    return value


def unchanged(_: DataType) -> Encode:
    """Return the encoder of values that JSON has as they are."""
    return lambda value: value


@dataclass(frozen=True)
class Bounds:
    """The range of a number in a type's declaration, and its default.

    ``high`` is the most that Paimon declares (None: another number is the bound), ``held`` the most that Spark holds if
    that is less.
    """

    low: int
    high: int | None
    default: int
    held: int | None = None


LENGTH: Mapping[str, Bounds] = {"length": Bounds(1, MAX_LENGTH, 1)}


def declaration(data_type: DataType) -> str:
    """Return a type as Paimon spells most: its kind, and its numbers in parentheses."""
    numbers = [str(getattr(data_type, name)) for name in data_type.entry.parameters]
    return f"{data_type.kind}({', '.join(numbers)})" if numbers else data_type.kind.value


@dataclass(frozen=True)
class Entry:
    """One kind of type.

    Text: ``spark`` is the type as which Spark reads the values of a run, ``sql`` Paimon's spelling without NOT NULL,
    ``parameters`` the numbers of a declaration by attribute of ``DataType``, ``unbounded`` the kind that a type of
    ``MAX_LENGTH`` is, ``inside`` the types within by member of Paimon's JSON: the attribute of ``DataType``.

    Values: ``decode`` reads JSON (never null; raises ``ValueFault``), ``encode`` writes it, ``from_text`` makes text
    (of a URL, a default) what ``decode`` reads. ``bits`` is the size of an integer.

    Order: ``ordered`` says whether values have one; ``rank`` is what sorts so. ``padded``:
    ``sequence.auto-padding`` takes it. ``orders_groups``: it may order a sequence group.

    Keys: ``hashed`` gives the bytes of a value that Spark's xxhash64 reads; None if no key may have the type.

    Change: ``widens`` says to which types a column may go. Runs keep the type that they were written with, so these are
    the types as which Spark (its vectorized and its row reader) and pyarrow read every value intact, also after several
    changes. ``key_widens``: a key column may go there too, because its token, the hash of what is stored, stays.
    ``widened`` makes a value of a narrower type one of this type.
    """

    family: Family
    spark: Callable[[DataType], str]
    decode: Callable[[DataType], Decode]
    encode: Callable[[DataType], Encode] = unchanged
    from_text: Callable[[str], Any] = lambda text: text
    sql: Callable[[DataType], str] = declaration
    parameters: Mapping[str, Bounds] = field(default_factory=dict)
    unbounded: Kind | None = None
    inside: Mapping[str, str] = field(default_factory=dict)
    bits: int = 0
    ordered: bool = False
    rank: Callable[[Any], Any] = as_it_is
    padded: bool = False
    orders_groups: bool = False
    hashed: Callable[[Any, DataType], bytes] | None = None
    widens: Mapping[Kind, Widening] = field(default_factory=dict)
    key_widens: bool = False
    widened: Callable[[Any, DataType], Any] = lambda value, _: value
