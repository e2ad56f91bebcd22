"""A column of the source: how its values are made, and how a value of the source and one that the service shows are
compared.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

LONG: Final = 3_000  # characters: PostgreSQL keeps them outside of the row, so updates that leave them do not send them
_EPOCH: Final = datetime(1970, 1, 1)
_LETTERS: Final = "abc xyz\"'\\{},:é€😀"


@dataclass(frozen=True)
class Column:
    """``declared`` is its type in the source, ``kind`` in the service, where no command finds it. ``made`` gives a
    value, ``read`` is SQL that reads it, with the name as ``{}``; both sides go through ``same``.
    """

    declared: str
    made: Callable[[Random], Any]
    same: Callable[[Any], Any] = str
    read: str = "{}"
    kind: str = ""
    is_long: bool = False


def word(random: Random, most: int = 12) -> str:
    """A short text of letters that need care."""
    return "".join(random.choices(_LETTERS, k=random.randrange(most)))


def long(random: Random) -> str:
    """A long text that does not compress, or a short one."""
    return random.randbytes(LONG // 2).hex() if random.random() < 0.7 else word(random)


def whole(bits: int, *, signed: bool = True) -> Callable[[Random], str]:
    """Whole numbers of so many bits, often at the ends."""
    least = -(2 ** (bits - 1)) if signed else 0
    most = least + 2**bits - 1
    return lambda random: str(random.choice([least, most, 0, random.randrange(least, most)]))


def single(random: Random) -> str:
    """A number of 32 bits."""
    return str(random.choice([0.1, 1.5e-30, 3.4e38, random.randrange(-(2**24), 2**24) / 8]))


def double(random: Random) -> str:
    """A number of 64 bits."""
    return repr(random.choice([random.random(), 1e300, -2.5e-300]))


def money(random: Random) -> str:
    """A number of twelve digits, three of them behind the point."""
    return f"{Decimal(random.randrange(-(10**12) + 1, 10**12)).scaleb(-3)}"


def moment(digits: int, least: int = -(10**9), most: int = 4 * 10**9) -> Callable[[Random], str]:
    """Times of so many digits of a second; ``least`` and ``most`` are seconds of the epoch."""
    return lambda random: (
        f"{_EPOCH + timedelta(seconds=random.randrange(least, most))}.{random.randrange(10**digits):0{digits}d}"
    )


def day(random: Random) -> str:
    """A day of the years from 1900 on."""
    return str(date(1900, 1, 1) + timedelta(days=random.randrange(80_000)))


def clock(random: Random) -> str:
    """A time of day, in milliseconds."""
    return str((_EPOCH + timedelta(milliseconds=random.randrange(86_400_000))).time().isoformat("milliseconds"))


def document(random: Random) -> str:
    """JSON text."""
    return json.dumps({"n": random.randrange(100), "of": word(random), "note": long(random)}, ensure_ascii=False)


def as_single(value: Any) -> float:
    """A number of 32 bits, however it was written."""
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


def as_moment(value: Any) -> datetime:
    """A time, however it was written; it is UTC or has no zone."""
    return datetime.fromisoformat(str(value)).replace(tzinfo=None)


def as_decimal(value: Any) -> Decimal:
    """A decimal number, however it was written."""
    return Decimal(str(value))


def as_bool(value: Any) -> bool:
    """A truth value, however it was written."""
    return str(value).lower() in {"true", "1"}


def as_json(value: Any) -> Any:
    """What a JSON text says."""
    return json.loads(value) if isinstance(value, str) else value
