"""Debezium's placeholder for unchanged values that were not logged, in the shapes in which it is sent."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

UNAVAILABLE: Final = "__debezium_unavailable_value"
_NESTED = (list, dict)


@lru_cache(maxsize=64)
def _shapes(placeholder: str) -> tuple[tuple[str, str], list[int], list[int]]:
    content = placeholder.encode()
    signed = [byte - 256 if byte > 127 else byte for byte in content]
    return (placeholder, base64.b64encode(content).decode()), list(content), signed


def is_unavailable(value: Any, placeholder: str) -> bool:
    """Return whether a value is the placeholder: as text, as base64 of BYTES, as an array of one of these or of a
    number for each byte, or as a map of it.
    """
    texts, numbers, signed = _shapes(placeholder)
    if isinstance(value, str):
        return value in texts
    if isinstance(value, list):
        return value in (numbers, signed) or (len(value) == 1 and is_unavailable(value[0], placeholder))
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in texts


def members_unavailable(row: Mapping[str, Any], placeholder: str) -> Sequence[str]:
    """Return the members of a row whose values are the placeholder, or contain it."""
    texts = _shapes(placeholder)[0]
    return [
        name
        for name, value in row.items()
        # Most are texts and numbers: these are decided without a call.
        if (value in texts if type(value) is str else type(value) in _NESTED and holds_unavailable(value, placeholder))
    ]


def holds_unavailable(value: Any, placeholder: str) -> bool:
    """Return whether a value is the placeholder, or contains it."""
    if isinstance(value, str):
        return value in _shapes(placeholder)[0]
    if is_unavailable(value, placeholder):
        return True
    inner = value if isinstance(value, list) else value.values() if isinstance(value, Mapping) else ()
    return any(holds_unavailable(item, placeholder) for item in inner)
