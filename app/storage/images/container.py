"""The file of an image: tokens in order, the places of entries, the entries, checksums of all (decision 17).

```
entries   of any length, one behind the other, then zeros up to a multiple of 8
tokens    int64, one a row, ascending
places    int64, where each entry begins, then where the last one ends
checks    uint64, xxh3 of the entries of each block
meta      bytes, for anyone who wrote the file
words     the dictionary that each entry is compressed with; none if entries are as they are
footer    numbers and xxh3 of all that is not in a block
```
A block is ``BLOCK_ROWS`` rows, or one entry that has more. A block is checked when it is first read, all else when the
file is opened.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from app.storage.images.packing import unpacking
from app.storage.images.read_bytes import ReadBytes

BLOCK_ROWS = 256
_MAGIC = b"KFIMAGE2"
_EARLIER_MAGIC = b"KFIMAGE1"
# Rows, rows of an entry, places, blocks, bytes of meta and of the dictionary, where the tokens begin; checksum; magic.
_NUMBERS = struct.Struct("<7q")
_FOOTER = struct.Struct("<7qQ8s")

Int64s = npt.NDArray[np.int64]


class Damaged(ValueError):
    """The file of an image is damaged."""


class Earlier(Damaged):
    """The file is of an earlier release."""


def write_container(
    path: Path, tokens: Int64s, places: Int64s, rows_per_entry: int, meta: bytes = b"", dictionary: bytes = b""
) -> None:
    """Complete the file at ``path``, which holds the entries: ``places`` says where, one more than there are entries;
    they are compressed with the ``dictionary``, unless it is empty.

    An entry has ``rows_per_entry`` rows: 1, or ``BLOCK_ROWS`` times a whole number. The file is durable afterwards.
    """
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.write(b"\0" * (-end % 8))
        start = file.tell()
        file.flush()
        checks = np.fromiter(_checks(file, places, len(tokens), rows_per_entry), dtype=np.uint64)
        columns = [np.ascontiguousarray(column).tobytes() for column in (tokens, places, checks)]
        parts = [*columns, meta, dictionary]
        numbers = (len(tokens), rows_per_entry, len(places), len(checks), len(meta), len(dictionary), start)
        hashed = xxhash.xxh3_64()
        for part in (*parts, _NUMBERS.pack(*numbers)):
            hashed.update(part)
        file.writelines(parts)
        file.write(_FOOTER.pack(*numbers, hashed.intdigest(), _MAGIC))
        file.flush()
        os.fsync(file.fileno())


def _checks(file: BinaryIO, places: Int64s, rows: int, rows_per_entry: int) -> Iterator[int]:
    if not rows:
        return
    step = max(1, BLOCK_ROWS // rows_per_entry)
    edges = [*places[:-1:step].tolist(), int(places[-1])]
    for start, end in pairwise(edges):
        yield xxhash.xxh3_64_intdigest(os.pread(file.fileno(), end - start, start))


def spans(firsts: Int64s, lasts: Int64s) -> Int64s:
    """Return the numbers of all ranges from ``firsts`` (included) to ``lasts`` (excluded), concatenated."""
    counts = lasts - firsts
    ends = np.cumsum(counts)
    numbers: Int64s = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(firsts - ends + counts, counts)
    return numbers


class Container:
    """A file of an image, memory-mapped: rows by token, entries by row."""

    def __init__(self, path: Path) -> None:
        """Raise ``FileNotFoundError``, ``Earlier``, and ``Damaged`` if anything but the blocks is damaged."""
        with open(path, "rb") as file:
            self.size_bytes = os.fstat(file.fileno()).st_size
            if self.size_bytes < _FOOTER.size:
                raise Damaged(f"{path} is cut off")
            self._mapped = mmap.mmap(file.fileno(), self.size_bytes, access=mmap.ACCESS_READ)
        *numbers, checksum, magic = _FOOTER.unpack(self._mapped[-_FOOTER.size :])
        if magic == _EARLIER_MAGIC:
            raise Earlier(f"{path} is of an earlier release")
        self.rows, self.rows_per_entry, places, blocks, meta, dictionary, start = numbers
        lengths = (8 * self.rows, 8 * places, 8 * blocks, meta, dictionary)
        if magic != _MAGIC or start < 0 or start + sum(lengths) + _FOOTER.size != self.size_bytes:
            raise Damaged(f"{path} is cut off")
        hashed = xxhash.xxh3_64(memoryview(self._mapped)[start : start + sum(lengths)])
        hashed.update(_NUMBERS.pack(*numbers))
        if hashed.intdigest() != checksum:
            raise Damaged(f"{path} is damaged")
        edges = np.cumsum([start, *lengths]).tolist()
        view = memoryview(self._mapped)
        self._tokens = view[edges[0] : edges[1]].cast("q")
        self._places = view[edges[1] : edges[2]].cast("q")
        self._checks = view[edges[2] : edges[3]].cast("Q")
        self.meta = self._mapped[edges[3] : edges[4]]
        self._unpack = unpacking(self._mapped[edges[4] : edges[5]])
        self.tokens: Int64s = np.frombuffer(self._tokens, dtype=np.int64)
        self._block_rows = max(BLOCK_ROWS, self.rows_per_entry)
        self._checked = bytearray(blocks)
        self._view = view
        self.path = path
        self.used = True  # since somebody last asked

    @property
    def is_whole(self) -> bool:
        """Whether the file is complete: access to a page after its end would kill the process."""
        return self._mapped.size() >= self.size_bytes

    def rows_of(self, token: int) -> range:
        """Return the rows that have the token."""
        first = bisect_left(self._tokens, token)
        return self.rows_from(first) if first < self.rows and self._tokens[first] == token else range(0)

    def rows_from(self, first: int) -> range:
        """Return the row ``first`` and the next ones that have the same token."""
        tokens, last = self._tokens, first + 1
        token = tokens[first]
        while last < self.rows and tokens[last] == token:
            last += 1
        return range(first, last)

    def all_rows(self, tokens: Int64s) -> Int64s:
        """Return the rows that have one of ``tokens``, which are ascending and each once."""
        firsts, lasts = (np.searchsorted(self.tokens, tokens, side=side) for side in ("left", "right"))
        return spans(firsts, lasts)

    def first_rows(self, tokens: Int64s) -> Int64s:
        """Return for each token the first row that has it, or -1."""
        if not self.rows:
            return np.full(len(tokens), -1, dtype=np.int64)
        rows = np.searchsorted(self.tokens, tokens)
        held = self.tokens[np.minimum(rows, self.rows - 1)] == tokens
        return np.where(held, rows, -1)

    def entry(self, row: int) -> bytes:
        """Return the entry of the row. Raise ``Damaged`` if its block is damaged."""
        block = row // self._block_rows
        if not self._checked[block]:
            self._check(block)
        place = row // self.rows_per_entry
        return self._unpack(self._mapped[self._places[place] : self._places[place + 1]])

    def mapped_entry(self, place: int) -> memoryview:
        """Return the entry at a place in the mapped file, without a copy; entries are not compressed."""
        block = place * self.rows_per_entry // self._block_rows
        if not self._checked[block]:
            self._check(block)
        return self._view[self._places[place] : self._places[place + 1]]

    def behind(self, rows: Int64s, heads: Sequence[bytes], read: ReadBytes | None = None) -> list[bytes | None]:
        """Return the part of each row's entry after its head; None if the entry has another head. Raise as ``entry``,
        and ``TooMuchAtOnce``.
        """
        for block in np.unique(rows // self._block_rows).tolist():
            if not self._checked[block]:
                self._check(block)
        places = rows // self.rows_per_entry
        mapped, edges, unpack = self._mapped, np.frombuffer(self._places, dtype=np.int64), self._unpack
        rests: list[bytes | None] = []
        for start, end, head in zip(edges[places].tolist(), edges[places + 1].tolist(), heads, strict=True):
            entry = unpack(mapped[start:end])
            if read is not None:
                read.add(len(entry))
            rests.append(entry[len(head) :] if entry.startswith(head) else None)
        return rests

    def _check(self, block: int) -> None:
        step = self._block_rows // self.rows_per_entry
        start, end = self._places[block * step], self._places[min((block + 1) * step, len(self._places) - 1)]
        if xxhash.xxh3_64_intdigest(self._mapped[start:end]) != self._checks[block]:
            raise Damaged(f"block {block} of {self.path} is damaged")
        self._checked[block] = 1
