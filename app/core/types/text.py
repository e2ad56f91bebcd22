"""CHAR, VARCHAR and STRING."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.core.errors import FaultCode
from app.core.types.entry import LENGTH, Entry, always, longer
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, ValueFault, wrong

if TYPE_CHECKING:
    from app.core.types.datatype import DataType


def _decode(data_type: DataType) -> Decode:
    limit = data_type.length

    def decode(value: Any) -> str:
        if not isinstance(value, str):
            raise wrong("text", value, "send a JSON string")
        if limit is not None and len(value) > limit:
            message = f"the text has {len(value)} characters, {data_type.base_sql} holds {limit}"
            raise ValueFault(FaultCode.TOO_LONG, message, f"send at most {limit} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueFault(
                FaultCode.NOT_UNICODE, "the text holds half of a surrogate pair", "send valid Unicode"
            ) from None
        return value

    return decode


_STRING = Entry(
    Family.TEXT,
    spark=lambda _: "STRING",
    decode=_decode,
    ordered=True,
    padded=True,
    orders_groups=True,
    hashed=lambda value, _: value.encode(),
    key_widens=True,
)

TEXTS: Mapping[Kind, Entry] = {
    Kind.CHAR: replace(
        _STRING, parameters=LENGTH, widens={Kind.CHAR: longer, Kind.VARCHAR: longer, Kind.STRING: always}
    ),
    Kind.VARCHAR: replace(
        _STRING, parameters=LENGTH, unbounded=Kind.STRING, widens={Kind.VARCHAR: longer, Kind.STRING: always}
    ),
    Kind.STRING: _STRING,
}
