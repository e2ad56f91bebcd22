"""Deletion vectors: which rows of a data file are no rows of the table, inline in the log.

Delta's PROTOCOL.md, "Deletion Vector Format": a 64-bit Roaring bitmap in the portable layout behind a magic number, and
ZeroMQ's Base85 for text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from pyroaring import BitMap

_MAGIC = 1681511377
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)


def z85(content: bytes) -> str:
    """ZeroMQ's Base85 of ``content``, filled up with zero bytes to a multiple of four."""
    filled = content + bytes(-len(content) % 4)
    texts = []
    for (word,) in struct.iter_unpack(">I", filled):
        rest, low = divmod(word, 85**2)
        high, middle = divmod(rest, 85**2)
        texts.append(_ALPHABET[high] + _PAIRS[middle] + _PAIRS[low])
    return "".join(texts)


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
