"""XXH64 of whole columns, like Spark's ``xxhash64``: each value has its own seed, and no Python object.

https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

Words = npt.NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
# From this many values of one length on they are hashed together: fewer are faster one by one.
_TOGETHER: Final = 256
_LONGEST: Final = 128  # bytes: longer ones are read as fast one by one


def hashes_of_longs(values: npt.NDArray[np.integer[Any]], seeds: Words) -> Words:
    """Return the hash of each 64-bit number."""
    mixed = seeds + _P5 + np.uint64(8)
    return _avalanched(_with_word(mixed, values.astype(np.int64, copy=False).view(np.uint64)))


def hashes_of_ints(values: npt.NDArray[np.integer[Any]], seeds: Words) -> Words:
    """Return the hash of each 32-bit number, which smaller ones are, too."""
    mixed = seeds + _P5 + np.uint64(4)
    return _avalanched(_with_half(mixed, values.astype(np.int32, copy=False).view(np.uint32)))


def hashes_of_bytes(values: pa.StringArray | pa.BinaryArray, seeds: Words) -> Words:
    """Return the hash of the bytes of each text or binary value; that of a null is meaningless."""
    _, places, content = values.buffers()
    ends = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    hashes = np.empty(len(values), np.uint64)
    order = np.argsort(lengths, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length = int(lengths[same[0]]) if len(same) else 0
        if len(same) >= _TOGETHER and length <= _LONGEST:
            hashes[same] = _of_one_length(data, starts[same].astype(np.intp), length, seeds[same])
        else:
            hashes[same] = _one_by_one(data, starts[same], length, seeds[same])
    return hashes


def _one_by_one(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], length: int, seeds: Words) -> list[int]:
    content = data.data
    return [
        xxhash.xxh64_intdigest(content[start : start + length], seed)
        for start, seed in zip(starts.tolist(), seeds.tolist(), strict=True)
    ]


def _of_one_length(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.intp], length: int, seeds: Words) -> Words:
    """Return the hashes of the ``length`` bytes from each of ``starts`` on."""
    words, halves = _unaligned(data, np.uint64), _unaligned(data, np.uint32)
    mixed, done = _of_stripes(words, starts, length, seeds)
    mixed = mixed + np.uint64(length)
    while length - done >= 8:
        mixed = _with_word(mixed, words[starts + done])
        done += 8
    if length - done >= 4:
        mixed = _with_half(mixed, halves[starts + done])
        done += 4
    for place in range(done, length):
        mixed = _rotated(mixed ^ data[starts + place].astype(np.uint64) * _P5, 11) * _P1
    return _avalanched(mixed)


def _unaligned(data: npt.NDArray[np.uint8], number_type: Any) -> npt.NDArray[Any]:
    """Return the number that begins at each byte."""
    size = np.dtype(number_type).itemsize
    return np.ndarray(max(0, len(data) - size + 1), np.dtype(number_type).newbyteorder("<"), data, strides=(1,))


def _of_stripes(words: Words, starts: npt.NDArray[np.intp], length: int, seeds: Words) -> tuple[Words, int]:
    """Return the hashes of the stripes of 32 bytes, and the number of bytes in those stripes."""
    if length < 32:
        return seeds + _P5, 0
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
    whole = length - length % 32
    for place in range(0, whole, 32):
        lanes = [
            _rotated(lane + words[starts + (place + 8 * number)] * _P2, 31) * _P1 for number, lane in enumerate(lanes)
        ]
    first, second, third, fourth = lanes
    mixed = _rotated(first, 1) + _rotated(second, 7) + _rotated(third, 12) + _rotated(fourth, 18)
    for lane in lanes:
        mixed = (mixed ^ _rotated(lane * _P2, 31) * _P1) * _P1 + _P4
    return mixed, whole


def _with_word(mixed: Words, words: Words) -> Words:
    return _rotated(mixed ^ _rotated(words * _P2, 31) * _P1, 27) * _P1 + _P4


def _with_half(mixed: Words, halves: npt.NDArray[np.uint32]) -> Words:
    return _rotated(mixed ^ halves.astype(np.uint64) * _P1, 23) * _P2 + _P3


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _avalanched(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))
