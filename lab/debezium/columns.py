"""The columns of the source, one for each type of PostgreSQL that its tests' server has: how values are made, and how a
value of the source and one that the service shows are compared.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

LONG = 3_000  # characters that PostgreSQL keeps outside of the row, so an update that leaves them sends none of them
_EPOCH: Final = datetime(1970, 1, 1)
_LETTERS: Final = "abc xyz\"'\\{},:é€😀"


@dataclass(frozen=True)
class Column:
    """``made`` is a literal of the type; ``read`` is SQL with the name as ``{}``; both sides go through ``same``."""

    declared: str
    made: Callable[[Random], Any]
    same: Callable[[Any], Any] = str
    read: str = "{}::text"
    is_long: bool = False


def _word(random: Random, most: int = 12) -> str:
    return "".join(random.choices(_LETTERS, k=random.randrange(most)))


def _long(random: Random) -> str:
    return random.randbytes(LONG // 2).hex() if random.random() < 0.7 else _word(random)


def _whole(bits: int) -> Callable[[Random], str]:
    edge = 2 ** (bits - 1)
    return lambda random: str(random.choice([-edge, edge - 1, 0, random.randrange(-edge, edge)]))


def _float(text: Any) -> float:
    return float(str(text).replace("-Infinity", "-inf"))


def _single(random: Random) -> str:
    return str(random.choice([0.1, 1.5e-30, 3.4e38, random.randrange(-(2**24), 2**24) / 8]))


def _moment(digits: int) -> Callable[[Random], str]:
    def made(random: Random) -> str:
        at = _EPOCH + timedelta(seconds=random.randrange(-(10**9), 4 * 10**9))
        return f"{at}.{random.randrange(10**digits):0{digits}d}"

    return made


def _date(random: Random) -> str:
    return str(date(1900, 1, 1) + timedelta(days=random.randrange(80_000)))


def _time(random: Random) -> str:
    return f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}.{random.randrange(1000):03}"


def _timestamp(text: Any) -> datetime:
    return datetime.fromisoformat(str(text)).replace(tzinfo=None)


def _texts(random: Random) -> list[str | None]:
    return [_long(random), _word(random), None][: random.randrange(4)]


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _document(random: Random) -> str:
    return json.dumps({"n": random.randrange(100), "of": _word(random), "note": _long(random)}, ensure_ascii=False)


def _decimal(value: Any) -> Decimal:
    return Decimal(str(value))


COLUMNS: Final[Mapping[str, Column]] = {
    "small": Column("smallint", _whole(16)),
    "whole": Column("integer", _whole(32)),
    "big": Column("bigint", _whole(64)),
    "single": Column("real", _single, _float),
    "double": Column("double precision", lambda random: str(random.choice([random.random(), 1e300, 5e-324])), _float),
    "price": Column("numeric(12, 3)", lambda random: str(random.randrange(-(10**12), 10**12) / 1000), _decimal),
    "amount": Column("numeric", lambda random: f"{random.randrange(10**38)}.{random.randrange(10**9)}", _decimal),
    "cash": Column("money", lambda random: str(random.randrange(10**9) / 100), _decimal, "{}::numeric::text"),
    "sure": Column("boolean", lambda random: random.choice(["true", "false"]), lambda value: str(value).lower()),
    "flag": Column("bit(1)", lambda random: random.choice("01"), lambda value: str(value).lower(), "({} = B'1')::text"),
    "note": Column("text", _long, is_long=True),
    "short": Column("varchar(40)", _word),
    "code": Column("char(6)", lambda random: random.choice(["", "a", "abcdef"]), str, "rpad({}, 6)"),
    "uid": Column("uuid", lambda random: str(uuid.UUID(int=random.getrandbits(128)))),
    "mood": Column("mood", lambda random: random.choice(["sad", "ok", "happy"])),
    "day": Column("date", _date),
    "clock": Column("time(3)", _time, lambda value: time.fromisoformat(str(value))),
    "at": Column("timestamp(6)", _moment(6), _timestamp),
    "at_ms": Column("timestamp(3)", _moment(3), _timestamp),
    "moment": Column("timestamptz", _moment(6), _timestamp),
    "span": Column(
        "interval",
        lambda random: f"{random.randrange(-500, 500)} days {random.randrange(10**6)} seconds",
        int,
        "(extract(epoch FROM {}) * 1000000)::bigint::text",
    ),
    "photo": Column(
        "bytea",
        lambda random: f"\\x{_long(random).encode().hex()}",
        str,
        "translate(encode({}, 'base64'), E'\\n', '')",
        True,
    ),
    "doc": Column("json", _document, _json, is_long=True),
    "docb": Column("jsonb", _document, _json, is_long=True),
    "tags": Column("text[]", _texts, _json, "to_json({})::text", is_long=True),
    "counts": Column("integer[]", lambda random: [random.randrange(9)] * 3, _json, "to_json({})::text"),
    "host": Column("inet", lambda random: f"10.0.{random.randrange(256)}.1", str, "host({})"),
    "range": Column("int4range", lambda random: f"[1,{random.randrange(2, 99)})"),
}
