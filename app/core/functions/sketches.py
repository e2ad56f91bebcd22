"""Unions of bitmaps and sketches in their serialised forms.

The bytes may come from anywhere: all of them are checked here before a native library sees them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches  # type: ignore[import-untyped]  # ships no types

from app.core.functions.roaring import fault_of

# --- HLL --------------------------------------------------------------------------------------------------------------

_HLL_FAMILY = 7
_LIST, _SET, _HLL = 0, 1, 2
_HLL_4, _HLL_6, _HLL_8 = 0, 1, 2
_HLL_EMPTY, _HLL_COMPACT, _HLL_OUT_OF_ORDER = 4, 8, 16
# Length of the preamble of each mode, in words of 4 bytes.
_PREAMBLE_INTS = (2, 3, 10)
_LIST_PLACES = 8


def hll_union(a: bytes, b: bytes) -> bytes:
    """Return the union of two HLL sketches as compact HLL_4, with the smaller of their two precisions (lgK), as in
    Spark; an empty one adds nothing.

    Raise ``ValueError`` for bytes that are no HLL sketch.
    """
    sketches = sorted((_read_hll(a), _read_hll(b)), key=lambda sketch: (sketch.is_empty(), sketch.lg_config_k))
    # The union takes the most precise sketch last: the library loses a first one that it had to make less precise.
    union = datasketches.hll_union(sketches[0].lg_config_k)
    for sketch in sketches:
        union.update(sketch)
    return _hll_4(union)


def hll_fault(value: bytes) -> str | None:
    """Return why ``value`` is no HLL sketch; None if it is one."""
    return fault_of(_read_hll, value)


def hll_shown(value: bytes) -> bytes:
    """Return a sketch as it is, unless Spark's union may have made it: then as the compact HLL_4 of the same estimate.

    Runs of releases that merged by Spark SQL hold such unions. They are updatable HLL_8, and without a running estimate
    where two sketches with registers were united.
    Raise ``ValueError`` for bytes that are no HLL sketch.
    """
    sketch = _read_hll(value)
    if value[7] & 3 == _HLL:
        as_given = value[7] >> 2 & 3 != _HLL_8 or not value[5] & _HLL_OUT_OF_ORDER
    else:
        as_given = bool(value[5] & _HLL_COMPACT)
    if as_given:
        return bytes(value)
    union = datasketches.hll_union(sketch.lg_config_k)
    union.update(sketch)
    return _hll_4(union)


def _hll_4(union: Any) -> bytes:
    """Return the bytes of the result, which do not depend on the order of the united sketches.

    The coupons of lists are sorted. The running estimate depends on the order, so it is replaced by the one that is
    computed from the registers.
    """
    value = bytes(union.get_result(datasketches.tgt_hll_type.HLL_4).serialize_compact())
    mode = value[7] & 3
    start = (8, 12, 40 + _registers_bytes(value))[mode]
    coupons = sorted(struct.unpack(f"<{(len(value) - start) // 4}I", value[start:]))
    if mode == _HLL:
        value = value[:5] + bytes([value[5] | _HLL_OUT_OF_ORDER]) + value[6:8] + bytes(8) + value[16:]
    return value[:start] + struct.pack(f"<{len(coupons)}I", *coupons)


def _read_hll(value: bytes) -> Any:
    value = _check_hll(bytes(value))
    try:
        return datasketches.hll_sketch.deserialize(value)
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise ValueError(f"the HLL sketch cannot be read: {error}") from error


def _compact(value: bytes) -> bytes:
    """Return an updatable list or HLL_4 sketch as a compact one: Java leaves out the size of the table of
    exceptions.
    """
    mode, registers = value[7] & 3, _registers_bytes(value) if value[7] & 3 == _HLL else 0
    if value[5] & _HLL_COMPACT or mode == _SET or (mode == _HLL and value[7] >> 2 & 3 != _HLL_4):
        return value
    start = 4 * value[0] + registers
    table = [value[place : place + 4] for place in range(start, len(value), 4)]
    listed = b"".join(coupon for coupon in table if any(coupon))
    return value[:5] + bytes([value[5] | _HLL_COMPACT]) + value[6:start] + listed


def _finished(value: bytes) -> bytes:
    """Return HLL_6 or HLL_8 with the header that follows from its registers; a union in Java leaves another one."""
    target = value[7] >> 2 & 3
    if value[7] & 3 != _HLL or target == _HLL_4 or len(value) < 40:
        return value
    levels = _LEVELS[target](value[40 : 40 + _registers_bytes(value)])
    head = value[:5] + bytes([value[5] & _HLL_OUT_OF_ORDER, 0, value[7]]) + value[8:16]
    return head + struct.pack("<2dI", *_sums(levels), levels.count(0)) + value[36:]


def _sums(levels: bytes) -> tuple[float, float]:
    """Return the sums of 2 to the power of minus each level, of those below 32 and of the others; both are exact."""
    low, high = (sum(levels.count(n) * 0.5**n for n in half) for half in (range(32), range(32, 64)))
    return low, high


def _check_hll(value: bytes) -> bytes:
    """Return the sketch in a form that the library reads; it writes beyond its memory where a sketch contradicts
    itself.
    """
    if len(value) < 8 or value[1] != 1 or value[2] != _HLL_FAMILY:
        raise ValueError("the bytes do not begin like an HLL sketch")
    mode, target = value[7] & 3, value[7] >> 2 & 3
    if mode > _HLL or target > _HLL_8 or value[0] != _PREAMBLE_INTS[mode] or not 4 <= value[3] <= 21:
        raise ValueError("the header of the HLL sketch is not well formed")
    value = _finished(_compact(value))
    if len(value) < 4 * value[0]:
        raise ValueError("the HLL sketch ends too early")
    (_check_list, _check_set, _check_registers)[mode](value)
    return value


def _check_list(value: bytes) -> None:
    if value[4] > 3 or value[6] >= _LIST_PLACES or (value[5] & _HLL_EMPTY and value[6]):
        raise ValueError("the HLL sketch lists too many values")
    _check_coupons(value, 8, value[6])


def _check_set(value: bytes) -> None:
    (count,) = struct.unpack_from("<I", value, 8)
    if value[3] < 8 or not 5 <= value[4] <= value[3] - 3 or 4 * count > 3 << value[4]:
        raise ValueError("the HLL sketch has more values than its precision lets it list")
    if value[5] & _HLL_COMPACT:
        _check_coupons(value, 12, count)
    else:
        _check_coupons(value, 12, count, 1 << value[4])


def _check_coupons(value: bytes, start: int, count: int, places: int | None = None) -> Sequence[int]:
    """Return the ``count`` pairs (26 bits of hash, 6 bits of leading zeros) from ``start`` on, in a table of
    ``places``.
    """
    size = start + 4 * (count if places is None else places)
    if len(value) != size:
        raise ValueError(f"the HLL sketch has {len(value)} bytes and should have {size}")
    coupons = [coupon for coupon in struct.unpack_from(f"<{(size - start) // 4}I", value, start) if coupon]
    if len(coupons) != count or len(set(coupons)) < count or min(coupons, default=1 << 26) < 1 << 26:
        raise ValueError("the HLL sketch lists a value twice or none")
    return coupons


def _registers_bytes(value: bytes) -> int:
    registers = 1 << min(value[3], 21)
    return (registers // 2, 3 * registers // 4 + 1, registers, 0)[value[7] >> 2 & 3]


def _check_registers(value: bytes) -> None:
    smallest, target = value[6], value[7] >> 2 & 3
    estimate, low_sum, high_sum, at_smallest, exceptions = struct.unpack_from("<3d2I", value, 8)
    registers = value[40 : 40 + _registers_bytes(value)]
    coupons = _check_coupons(value, 40 + _registers_bytes(value), exceptions)
    levels = _LEVELS[target](registers)
    if target == _HLL_4:
        levels = _full_levels(levels, coupons, smallest)
    if (
        min(levels) < smallest
        or levels.count(smallest) != at_smallest
        or (target != _HLL_4 and (smallest or exceptions))
    ):
        raise ValueError("the registers of the HLL sketch contradict its header")
    if max(levels) > 63 or _sums(levels) != (low_sum, high_sum) or not 0 <= estimate < math.inf:
        raise ValueError("the registers of the HLL sketch contradict its sums")


def _full_levels(offsets: bytes, coupons: Sequence[int], smallest: int) -> bytes:
    """Return the levels of HLL_4: the smallest and 4 bits above it, or, where these are 15, a level in the list."""
    listed = {coupon & len(offsets) - 1: coupon >> 26 for coupon in coupons}
    if (
        smallest > 63 - 14
        or len(listed) < len(coupons)
        or offsets.count(15) != len(listed)
        or any(offsets[register] != 15 or level < smallest + 15 for register, level in listed.items())
    ):
        raise ValueError("the exceptions of the HLL sketch contradict its registers")
    levels = bytearray(offset + smallest for offset in offsets)
    for register, level in listed.items():
        levels[register] = level
    return bytes(levels)


def _levels_of_4(registers: bytes) -> bytes:
    return bytes(level for pair in registers for level in (pair & 15, pair >> 4))


def _levels_of_6(registers: bytes) -> bytes:
    words = (int.from_bytes(registers[place : place + 3], "little") for place in range(0, len(registers) - 1, 3))
    return bytes(word >> shift & 63 for word in words for shift in (0, 6, 12, 18))


_LEVELS: tuple[Callable[[bytes], bytes], ...] = (_levels_of_4, _levels_of_6, bytes)


# --- Theta ------------------------------------------------------------------------------------------------------------

_ALPHA, _QUICK_SELECT, _COMPACT = 1, 2, 3
_BIG_ENDIAN, _THETA_EMPTY = 1, 4
# Hash of the default seed, 9001.
_SEED_HASH = b"\xcc\x93"
_NOMINAL_ENTRIES = 4096
_EVERYTHING = 2**63 - 1
_EMPTY_THETA = bytes.fromhex("01030300001e0000")


@dataclass(frozen=True)
class _Theta:
    """The set of the hashes below ``theta``; ``empty``: it saw no value. One that is not empty may keep no hash."""

    empty: bool
    theta: int
    hashes: frozenset[int]


def theta_union(a: bytes, b: bytes) -> bytes:
    """Return the union of two Theta sketches, compact and ordered, of 4096 nominal entries and the default seed.

    Raise ``ValueError`` for bytes that are no Theta sketch or were made with another seed.
    """
    return _write_theta(_united(_read_theta(a), _read_theta(b)))


def theta_fault(value: bytes) -> str | None:
    """Return why ``value`` is no Theta sketch that can be united; None if it is one."""
    return fault_of(_read_theta, value)


def theta_shown(value: bytes) -> bytes:
    """Return a compact sketch as it is; an updatable one, or a compressed one, as compact and ordered.

    Runs of releases that merged by Spark SQL hold compressed ones. Raise ``ValueError`` for bytes that are no Theta
    sketch or were made with another seed.
    """
    sketch = _read_theta(value)
    return bytes(value) if value[1] == 3 and value[2] == _COMPACT else _write_theta(sketch)


def _united(a: _Theta, b: _Theta) -> _Theta:
    theta = min(a.theta, b.theta)
    hashes = sorted(hash_ for hash_ in a.hashes | b.hashes if hash_ < theta)
    if len(hashes) > _NOMINAL_ENTRIES:
        theta = hashes[_NOMINAL_ENTRIES]
        del hashes[_NOMINAL_ENTRIES:]
    return _Theta(a.empty and b.empty, theta, frozenset(hashes))


def _write_theta(sketch: _Theta) -> bytes:
    if sketch.empty:
        return _EMPTY_THETA
    hashes = struct.pack(f"<{len(sketch.hashes)}Q", *sorted(sketch.hashes))
    if sketch.theta < _EVERYTHING:
        return _theta_head(3, 0x1A) + struct.pack("<IfQ", len(sketch.hashes), 1.0, sketch.theta) + hashes
    if len(sketch.hashes) == 1:
        return _theta_head(1, 0x3A) + hashes
    return _theta_head(2, 0x1A) + struct.pack("<If", len(sketch.hashes), 1.0) + hashes


def _theta_head(longs: int, flags: int) -> bytes:
    return bytes([longs, 3, 3, 0, 0, flags]) + _SEED_HASH


def _read_theta(value: bytes) -> _Theta:
    value = bytes(value)
    if len(value) < 8 or value[2] not in (_ALPHA, _QUICK_SELECT, _COMPACT):
        raise ValueError("the bytes do not begin like a Theta sketch")
    if value[1] == 4 and value[2] == _COMPACT:
        value = _uncompressed(value)
    if value[1] != 3 or value[5] & _BIG_ENDIAN:
        raise ValueError(
            f"serial version {value[1]} of Theta sketches cannot be read; write it with DataSketches 1 or later"
        )
    if value[5] & _THETA_EMPTY:
        return _Theta(True, _EVERYTHING, frozenset())
    if value[6:8] != _SEED_HASH:
        raise ValueError("the Theta sketch was made with another seed than the default")
    return _read_compact(value) if value[2] == _COMPACT else _read_table(value)


def _uncompressed(value: bytes) -> bytes:
    try:
        return bytes(datasketches.compact_theta_sketch.deserialize(value).serialize())
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise ValueError(f"the Theta sketch cannot be read: {error}") from error


def _read_compact(value: bytes) -> _Theta:
    longs = value[0] & 0x3F
    if not 1 <= longs <= 3 or len(value) < 8 * max(2, longs):
        raise ValueError("the header of the Theta sketch is not well formed")
    count = 1 if longs == 1 else struct.unpack_from("<I", value, 8)[0]
    theta = struct.unpack_from("<Q", value, 16)[0] if longs == 3 else _EVERYTHING
    if len(value) != 8 * (longs + count):
        raise ValueError(f"the Theta sketch has {len(value)} bytes and should have {8 * (longs + count)}")
    hashes = frozenset(struct.unpack_from(f"<{count}Q", value, 8 * longs))
    if len(hashes) != count or not all(0 < hash_ < theta for hash_ in hashes):
        raise ValueError("the Theta sketch holds a hash twice or beyond its limit")
    return _Theta(False, theta, hashes)


def _read_table(value: bytes) -> _Theta:
    """Return an updatable sketch: a hash table, whose free places are 0 and which may hold outdated hashes."""
    places = 1 << min(value[4], 40)
    if value[0] & 0x3F != 3 or len(value) != 8 * (3 + places):
        raise ValueError("the header of the Theta sketch is not well formed")
    theta: int = struct.unpack_from("<Q", value, 16)[0]
    return _Theta(False, theta, frozenset(h for h in struct.unpack_from(f"<{places}Q", value, 24) if 0 < h < theta))
