"""What bitmaps and sketches say, whatever their bytes, restated.

The bytes of a union are not unique: a value that was never united is stored as it was given, a sketch may be written in
several target types, and a theta sketch is a set of hashes in any order. So rows are compared by what their values
mean: the members of a bitmap, the coupons or registers of an HLL sketch and its precision, the hashes of a theta sketch
and its threshold. Each meaning here is that of the union of all given values at once, by the libraries that wrote
them, where ``app.core`` unites two at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

import datasketches
from pyroaring import BitMap, BitMap64

from app.core.functions.roaring import read_roaring64, write_roaring32, write_roaring64

Meaning = Callable[[Collection[bytes]], Any]


def _members32(values: Collection[bytes]) -> frozenset[int]:
    return frozenset(member for value in values for member in BitMap.deserialize(value))


def _members64(values: Collection[bytes]) -> frozenset[int]:
    # Nothing else in Python reads Java's form; test_roaring64 holds the reader to bytes that Java wrote.
    return frozenset(member for value in values for member in read_roaring64(value))


def _hll(values: Collection[bytes]) -> tuple[int, bool, Any]:
    sketches = [datasketches.hll_sketch.deserialize(value) for value in values]
    # The least precise one decides, empty ones do not count; and the library loses a first one that it must coarsen.
    sketches.sort(key=lambda sketch: (sketch.is_empty(), sketch.lg_config_k))
    union = datasketches.hll_union(sketches[0].lg_config_k)
    for sketch in sketches:
        union.update(sketch)
    full = union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact()
    if full[7] & 3 == 2:
        return full[3], True, full[40:]
    return full[3], False, frozenset(struct.iter_unpack("<I", full[4 * full[0] :]))


def _theta(values: Collection[bytes]) -> tuple[int, frozenset[int]]:
    union = datasketches.theta_union()
    for value in values:
        union.update(datasketches.compact_theta_sketch.deserialize(value))
    result = union.get_result()
    return result.theta64, frozenset(result)


MEANINGS: Mapping[str, Meaning] = {"rbm32": _members32, "rbm64": _members64, "hll_sketch": _hll, "theta_sketch": _theta}


def _hll_of(precision: int, members: range, target: Any) -> bytes:
    sketch = datasketches.hll_sketch(precision, target)
    for member in members:
        sketch.update(member)
    return bytes(sketch.serialize_compact())


def _theta_of(precision: int, members: range) -> bytes:
    sketch = datasketches.update_theta_sketch(precision)
    for member in members:
        sketch.update(member)
    return bytes(sketch.compact().serialize())


_PIECES = (range(0), range(3), range(2, 30), range(65_530, 65_545), range(100, 300, 7))
VALUES: Mapping[str, list[bytes | None]] = {
    "rbm32": [None, *(write_roaring32(BitMap(piece)) for piece in _PIECES)],
    "rbm64": [
        None,
        *(write_roaring64(BitMap64(member << shift for member in p)) for p in _PIECES for shift in (0, 33)),
    ],
    "hll_sketch": [
        None,
        _hll_of(4, range(3), datasketches.HLL_8),
        _hll_of(4, range(2, 40), datasketches.HLL_6),
        _hll_of(6, range(5), datasketches.HLL_4),
        _hll_of(6, range(100, 400), datasketches.HLL_4),
        _hll_of(8, range(20), datasketches.HLL_8),
        _hll_of(8, range(0), datasketches.HLL_8),
    ],
    # Of few places, so that some hold a sample of their members only.
    "theta_sketch": [None, *(_theta_of(5, members) for members in (range(0), range(3), range(2, 20), range(10, 400)))],
}
