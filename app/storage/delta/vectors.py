"""Deletion vectors: the deleted rows of a data file, inline in the log.

Delta's PROTOCOL.md, "Deletion Vector Format": a 64-bit Roaring bitmap in the portable layout behind a magic number, and
ZeroMQ's Base85 for text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from pyroaring import BitMap

_MAGIC = 1681511377
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = np.frombuffer(_ALPHABET.encode(), np.uint8)
_PLACES = len(_ALPHABET) ** np.arange(4, -1, -1)


def z85(content: bytes) -> str:
    """Return ZeroMQ's Base85 of ``content``, filled up with zero bytes to a multiple of four."""
    words = np.frombuffer(content + bytes(-len(content) % 4), ">u4").astype(np.int64)
    digits = words[:, None] // _PLACES % len(_ALPHABET)
    return bytes(_DIGITS[digits]).decode()


def deletion_vector(places: Iterable[int]) -> dict[str, Any] | None:
    """Return the vector that hides the rows at ``places``, each below 2^32; None if there are none."""
    dead = BitMap(places)
    if not dead:
        return None
    dead.run_optimize()
    content = struct.pack("<IQI", _MAGIC, 1, 0) + dead.serialize()  # one bitmap, of the high word 0
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(content),
        "sizeInBytes": len(content),
        "cardinality": len(dead),
    }
