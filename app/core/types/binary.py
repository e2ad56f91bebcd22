"""BINARY, VARBINARY and BYTES."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.core.errors import FaultCode
from app.core.types.entry import LENGTH, Entry, always, longer
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, Encode, ValueFault, shown, wrong

if TYPE_CHECKING:
    from app.core.types.datatype import DataType


def _decode(data_type: DataType) -> Decode:
    limit = data_type.length

    def decode(value: Any) -> bytes:
        if isinstance(value, str):
            try:
                value = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                raise ValueFault(
                    FaultCode.NOT_BASE64, f"{shown(value)} is not base64", "encode the bytes as base64"
                ) from None
        if not isinstance(value, bytes):
            raise wrong("binary", value, "send the bytes as base64 text")
        if limit is not None and len(value) > limit:
            message = f"the value has {len(value)} bytes, {data_type.base_sql} holds {limit}"
            raise ValueFault(FaultCode.TOO_LONG, message, f"send at most {limit} bytes")
        return value

    return decode


def _encode(_: DataType) -> Encode:
    return lambda value: base64.b64encode(value).decode()


_BYTES = Entry(
    Family.BINARY,
    spark=lambda _: "BINARY",
    decode=_decode,
    encode=_encode,
    ordered=True,
    hashed=lambda value, _: value,
    key_widens=True,
)

BINARIES: Mapping[Kind, Entry] = {
    Kind.BINARY: replace(
        _BYTES, parameters=LENGTH, widens={Kind.BINARY: longer, Kind.VARBINARY: longer, Kind.BYTES: always}
    ),
    Kind.VARBINARY: replace(
        _BYTES, parameters=LENGTH, unbounded=Kind.BYTES, widens={Kind.VARBINARY: longer, Kind.BYTES: always}
    ),
    Kind.BYTES: _BYTES,
}
