"""Roaring bitmaps as Java stores them: 32-bit ones in the portable format, 64-bit ones as ``Roaring64Bitmap``.

A Roaring bitmap is a list of containers, each the set of the low 16 bits of all values with the same high bits. Both
formats write a container's content in the same bytes; they differ in the bytes around it. The 64-bit one is the Java
library's own: an adaptive radix tree from the high 48 bits to the containers (*not* the portable 64-bit format).

What is written depends on the values alone, and is what Java writes for a bitmap that was filled in ascending order and
then run-optimised. These functions need nothing but pyroaring, so that Spark's workers can run them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from pyroaring import BitMap, BitMap64

_RUN, _BITMAP, _ARRAY = 0, 1, 2  # the radix tree's format numbers the kinds of containers so
_BITMAP_BYTES = 8192
_MOST_OF_AN_ARRAY = 4096
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347  # the portable format's first number
_OFFSETS_FROM = 4  # a portable bitmap with runs lists the containers' places from so many containers on

_KEY_BYTES = 6  # the radix tree's keys are the high 48 bits, most significant byte first
_LEAF = 4
_CAPACITIES = (4, 16, 48, 256)  # the children that a branch of kind 0 to 3 has at most
_KEYS_BYTES = (4, 16, 256, 32)  # the bytes in which a branch of each kind says its children's keys
_NO_CHILD = 0xFF
_NOT_TRIMMED = 0xFE


class Container(NamedTuple):
    """The low 16 bits of the values that share the high bits ``key``; ``body`` is their serialisation."""

    key: int
    kind: int
    cardinality: int
    body: bytes


class _Reader:
    """Takes bytes one piece after the other; raises ``ValueError`` at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, size: int) -> bytes:
        piece = self._data[self._place : self._place + size]
        if len(piece) < size:
            raise ValueError("the bytes end too early")
        self._place += size
        return piece

    def numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def number(self, layout: str) -> int:
        return int(self.numbers(layout)[0])

    def end(self) -> None:
        if self._place < len(self._data):
            raise ValueError(f"{len(self._data) - self._place} bytes follow the end of the bitmap")


# --- Containers -------------------------------------------------------------------------------------------------------


def _container_of(key: int, values: Sequence[int]) -> Container:
    """Return the container without runs of ascending ``values``."""
    if len(values) <= _MOST_OF_AN_ARRAY:
        return Container(key, _ARRAY, len(values), struct.pack(f"<{len(values)}H", *values))
    bits = bytearray(_BITMAP_BYTES)
    for value in values:
        bits[value >> 3] |= 1 << (value & 7)
    return Container(key, _BITMAP, len(values), bytes(bits))


def _read_array(reader: _Reader, key: int, cardinality: int) -> Container:
    values = reader.numbers(f"<{cardinality}H")
    if any(a >= b for a, b in pairwise(values)):
        raise ValueError("the values of an array container are not ascending")
    return _container_of(key, values)


def _read_bitmap(reader: _Reader, key: int, cardinality: int) -> Container:
    body = reader.take(_BITMAP_BYTES)
    bits = int.from_bytes(body, "little")
    if bits.bit_count() != cardinality:
        raise ValueError(f"a bitmap container holds {bits.bit_count()} values and says {cardinality}")
    if cardinality > _MOST_OF_AN_ARRAY:
        return Container(key, _BITMAP, cardinality, body)
    return _container_of(key, [value for value in range(1 << 16) if body[value >> 3] >> (value & 7) & 1])


def _read_runs(reader: _Reader, key: int, _cardinality: int) -> Container:
    numbers = reader.numbers(f"<{2 * reader.number('<H')}H")
    runs: list[list[int]] = []
    for first, more in zip(numbers[::2], numbers[1::2], strict=True):
        after = first + more + 1
        if after > 1 << 16 or (runs and first < runs[-1][1]):
            raise ValueError("the runs of a run container overlap or leave it")
        if runs and first == runs[-1][1]:
            runs[-1][1] = after
        else:
            runs.append([first, after])
    return Container(key, _RUN, sum(after - first for first, after in runs), _runs_body(runs))


def _runs_body(runs: Sequence[Sequence[int]]) -> bytes:
    numbers = [number for first, after in runs for number in (first, after - first - 1)]
    return struct.pack(f"<{1 + len(numbers)}H", len(runs), *numbers)


def _read_container(reader: _Reader, key: int, kind: int, cardinality: int) -> Container:
    readers: dict[int, Callable[[_Reader, int, int], Container]] = {
        _RUN: _read_runs,
        _BITMAP: _read_bitmap,
        _ARRAY: _read_array,
    }
    if kind not in readers:
        raise ValueError(f"there is no container of kind {kind}")
    if not 1 <= cardinality <= 1 << 16:
        raise ValueError(f"a container cannot hold {cardinality} values")
    container = readers[kind](reader, key, cardinality)
    if not container.cardinality:
        raise ValueError("a container is empty")
    return container


def _as_java_chooses(container: Container) -> Container:
    """Java keeps an array where runs are not smaller; pyroaring counts two bytes more for an array."""
    if container.kind != _RUN or len(container.body) < 2 * container.cardinality:
        return container
    numbers = struct.unpack(f"<{len(container.body) // 2}H", container.body)[1:]
    runs = zip(numbers[::2], numbers[1::2], strict=True)
    return _container_of(container.key, [value for first, more in runs for value in range(first, first + more + 1)])


# --- The portable format of 32-bit bitmaps ----------------------------------------------------------------------------


def _read_portable(reader: _Reader) -> list[Container]:
    cookie = reader.number("<I")
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = int.from_bytes(reader.take((count + 7) // 8), "little")
    elif cookie == _WITHOUT_RUNS:
        count, flags = reader.number("<I"), 0
    else:
        raise ValueError("the bytes do not begin like a portable Roaring bitmap")
    if count > 1 << 16:
        raise ValueError(f"a 32-bit bitmap cannot have {count} containers")
    heads = list(struct.iter_unpack("<2H", reader.take(4 * count)))
    _check_ascending([key for key, _ in heads])
    if cookie == _WITHOUT_RUNS or count >= _OFFSETS_FROM:
        reader.take(4 * count)
    return [
        _read_container(reader, key, _portable_kind(flags >> place & 1, less_one + 1), less_one + 1)
        for place, (key, less_one) in enumerate(heads)
    ]


def _portable_kind(is_run: int, cardinality: int) -> int:
    if is_run:
        return _RUN
    return _ARRAY if cardinality <= _MOST_OF_AN_ARRAY else _BITMAP


def _check_ascending(keys: Sequence[Any]) -> None:
    if any(a >= b for a, b in pairwise(keys)):
        raise ValueError("the containers are not in ascending order")


def _write_portable(containers: Sequence[Container]) -> bytes:
    count = len(containers)
    flags = sum(1 << place for place, container in enumerate(containers) if container.kind == _RUN)
    if flags:
        parts = [struct.pack("<2H", _WITH_RUNS, count - 1), flags.to_bytes((count + 7) // 8, "little")]
    else:
        parts = [struct.pack("<2I", _WITHOUT_RUNS, count)]
    parts += [struct.pack("<2H", container.key, container.cardinality - 1) for container in containers]
    if not flags or count >= _OFFSETS_FROM:
        place = sum(map(len, parts)) + 4 * count
        for container in containers:
            parts.append(struct.pack("<I", place))
            place += len(container.body)
    return b"".join([*parts, *(container.body for container in containers)])


def read_roaring32(data: bytes) -> BitMap:
    """Return the 32-bit bitmap that ``data`` holds in the portable format. Raise ``ValueError`` if it holds none."""
    reader = _Reader(bytes(data))
    containers = _read_portable(reader)
    reader.end()
    # What was checked is written again: pyroaring trusts the bytes it gets.
    return BitMap.deserialize(_write_portable(containers))


def write_roaring32(bitmap: BitMap) -> bytes:
    """Return ``bitmap`` in the portable format, run-optimised as Java does it."""
    copy = BitMap(bitmap)
    copy.run_optimize()
    return _write_portable([_as_java_chooses(c) for c in _read_portable(_Reader(copy.serialize()))])


# --- The radix tree of 64-bit bitmaps ---------------------------------------------------------------------------------


def read_roaring64(data: bytes) -> BitMap64:
    """Return the bitmap that Java's ``Roaring64Bitmap.serialize`` wrote as ``data``; its values are unsigned.

    Raise ``ValueError`` if ``data`` is nothing of the kind.
    """
    reader = _Reader(bytes(data))
    tag = reader.number("B")
    if tag > 1:
        raise ValueError("the bytes do not begin like a Roaring64Bitmap")
    containers = _read_tree(reader) if tag else []
    reader.end()
    parts = [(high, list(group)) for high, group in groupby(containers, lambda c: c.key >> 16)]
    portable = [struct.pack("<Q", len(parts))]
    for high, group in parts:
        portable += [struct.pack("<I", high), _write_portable([c._replace(key=c.key & 0xFFFF) for c in group])]
    return BitMap64.deserialize(b"".join(portable))


def _read_tree(reader: _Reader) -> list[Container]:
    size = reader.number("<Q")
    leaves = list(_read_node(reader, 0))
    if len(leaves) != size:
        raise ValueError(f"the tree has {len(leaves)} leaves and says {size}")
    _check_ascending([key for key, _ in leaves])
    places = {place: key for key, place in leaves}
    if len(places) < size:
        raise ValueError("two keys share a container")
    containers = sorted(_read_containers(reader, places))
    if len(containers) < size:
        raise ValueError("a key has no container")
    reader.numbers("<Qii")  # how many containers there are and where the next would go
    return containers


def _read_node(reader: _Reader, depth: int) -> Iterator[tuple[int, int]]:
    """Yield the keys and container places of the leaves below a node whose keys agree in their first ``depth``
    bytes.
    """
    kind, children, prefix = reader.numbers("<BHB")
    if kind == _LEAF and not prefix:
        yield int.from_bytes(reader.take(_KEY_BYTES), "big"), reader.number("<Q")
        return
    if kind >= _LEAF or depth + prefix >= _KEY_BYTES or not 1 <= children <= _CAPACITIES[kind]:
        raise ValueError("a node of the tree is not well formed")
    reader.take(prefix + _KEYS_BYTES[kind])  # each leaf repeats its whole key
    for _ in range(children):
        yield from _read_node(reader, depth + prefix + 1)


def _read_containers(reader: _Reader, keys: dict[int, int]) -> Iterator[Container]:
    """Yield the containers of the places in ``keys``; there may be empty places, and containers that no key has any
    more.
    """
    for high in range(reader.number("<I")):
        _, places = reader.numbers("<BI")
        for low in range(places):
            present = reader.number("B")
            if present > 1:
                raise ValueError("a place for a container is neither empty nor taken")
            if present:
                kind, cardinality = reader.numbers("<BI")
                key = keys.get(high << 32 | low)
                container = _read_container(reader, key or 0, kind, cardinality)
                if key is not None:
                    yield container


def write_roaring64(bitmap: BitMap64) -> bytes:
    """Return ``bitmap`` as Java's ``Roaring64Bitmap.serialize`` writes it, run-optimised."""
    containers = _containers64(bitmap)
    if not containers:
        return b"\x00"
    keys = [container.key.to_bytes(_KEY_BYTES, "big") for container in containers]
    count = len(containers)
    places = _places(count)
    parts = [
        struct.pack("<BQ", 1, count),
        *_write_node(keys, range(count), 0),
        struct.pack("<IBI", 1, _NOT_TRIMMED, places),
    ]
    for container in containers:
        parts += [struct.pack("<BBI", 1, container.kind, container.cardinality), container.body]
    return b"".join([*parts, bytes(places - count), struct.pack("<Qii", count, 0, count - 1)])


def _containers64(bitmap: BitMap64) -> list[Container]:
    copy = BitMap64(bitmap)
    copy.run_optimize()
    reader = _Reader(copy.serialize())
    containers = []
    for _ in range(reader.number("<Q")):
        high = reader.number("<I") << 16
        containers += [_as_java_chooses(c)._replace(key=high | c.key) for c in _read_portable(reader)]
    return containers


def _places(count: int) -> int:
    """Java's list of containers grows by half, and all its places are written."""
    places = 1
    for needed in range(2, count + 1):
        if needed > places:
            places = max(places + (places >> 1), needed)
    return places


def _write_node(keys: Sequence[bytes], members: range, depth: int) -> Iterator[bytes]:
    """Yield the nodes over the ``members`` of the ascending ``keys``, which agree in their first ``depth`` bytes."""
    first, last = keys[members[0]], keys[members[-1]]
    if len(members) == 1:
        yield struct.pack("<BHB", _LEAF, 0, 0) + first + struct.pack("<Q", members[0])
        return
    split = next(place for place in range(depth, _KEY_BYTES) if first[place] != last[place])
    groups = [(byte, list(group)) for byte, group in groupby(members, lambda member: keys[member][split])]
    kind = next(kind for kind, capacity in enumerate(_CAPACITIES) if len(groups) <= capacity)
    yield struct.pack("<BHB", kind, len(groups), split - depth) + first[depth:split]
    yield _child_keys(kind, [byte for byte, _ in groups])
    for _, group in groups:
        yield from _write_node(keys, range(group[0], group[-1] + 1), split + 1)


def _child_keys(kind: int, keys: Sequence[int]) -> bytes:
    size = _KEYS_BYTES[kind]
    if kind == 3:
        return sum(1 << key for key in keys).to_bytes(size, "little")
    if kind == 2:
        index = bytearray([_NO_CHILD]) * size
        for child, key in enumerate(keys):
            index[key] = child
        return _reversed_words(bytes(index), 8)
    return _reversed_words(bytes(keys).ljust(size, b"\x00"), min(size, 8))


def _reversed_words(data: bytes, width: int) -> bytes:
    """Java packs bytes into words from the high end, and writes the words from the low end."""
    return b"".join(data[place : place + width][::-1] for place in range(0, len(data), width))


# --- What the aggregate functions use ---------------------------------------------------------------------------------


def rbm32_union(a: bytes, b: bytes) -> bytes:
    """Return all values of two portable 32-bit bitmaps. Raise ``ValueError`` for bytes that are none."""
    return write_roaring32(read_roaring32(a) | read_roaring32(b))


def rbm64_union(a: bytes, b: bytes) -> bytes:
    """Return all values of two serialised ``Roaring64Bitmap``. Raise ``ValueError`` for bytes that are none."""
    return write_roaring64(read_roaring64(a) | read_roaring64(b))


def rbm64_fault(value: bytes) -> str | None:
    """Return why ``value`` is no serialised ``Roaring64Bitmap``; None if it is one."""
    try:
        read_roaring64(value)
    except ValueError as error:
        return str(error)
    return None


def fault_of(read: Callable[[bytes], object], value: bytes) -> str | None:
    """Return why ``read`` refuses ``value``; None if it reads it."""
    try:
        read(value)
    except ValueError as error:
        return str(error)
    return None


def rbm32_fault(value: bytes) -> str | None:
    """Return why ``value`` is no 32-bit Roaring bitmap in the portable format; None if it is one."""
    return fault_of(read_roaring32, value)
