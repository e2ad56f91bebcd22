"""BOOLEAN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.core.types.entry import Entry, int_bytes
from app.core.types.kinds import Family, Kind
from app.core.types.values import Decode, wrong

if TYPE_CHECKING:
    from app.core.types.datatype import DataType


def _boolean(_: DataType) -> Decode:
    def decode(value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong("a BOOLEAN", value, "send true or false")
        return value

    return decode


def _from_text(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


BOOLEANS: Mapping[Kind, Entry] = {
    Kind.BOOLEAN: Entry(
        Family.BOOLEAN,
        spark=lambda _: "BOOLEAN",
        decode=_boolean,
        from_text=_from_text,
        ordered=True,
        hashed=lambda value, _: int_bytes(int(value)),
    )
}
