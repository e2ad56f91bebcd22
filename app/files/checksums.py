"""Checksums of files: a digest of the whole file, and one of each block, so that a part can be checked as well."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xxhash

from app.files.layout import Warehouse

BLOCK_BYTES = 2**20
# Size of the digest of one block.
DIGEST_BYTES = 8


@dataclass(frozen=True)
class Checksums:
    """The checksums of a file: its size in bytes, xxh3-128 of the whole in hexadecimal, xxh3-64 of each block of
    ``BLOCK_BYTES``.
    """

    size_bytes: int
    digest: str
    block_digests: bytes


class Sums:
    """The checksums of bytes that come in pieces of any length."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._whole = xxhash.xxh3_128()
        self._block = xxhash.xxh3_64()
        self._digests = bytearray()

    def add(self, piece: Any) -> None:
        """Add the next bytes, of any object with a buffer."""
        view = memoryview(piece).cast("B")
        self._whole.update(view)
        while len(view):
            free = BLOCK_BYTES - self.size_bytes % BLOCK_BYTES
            part, view = view[:free], view[free:]
            self._block.update(part)
            self.size_bytes += len(part)
            if len(part) == free:
                self._digests += self._block.digest()
                self._block.reset()

    @property
    def checksums(self) -> Checksums:
        """The checksums of all bytes written so far; the last block may be short."""
        rest = self._block.digest() if self.size_bytes % BLOCK_BYTES else b""
        return Checksums(self.size_bytes, self._whole.hexdigest(), bytes(self._digests) + rest)


class SummedSink(io.RawIOBase):
    """Writes to ``file`` sequentially, and computes the checksums. It does not close the file."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self.sums = Sums()
        self._file = file

    def writable(self) -> bool:
        """Return True: it takes bytes."""
        return True

    def write(self, piece: Any) -> int:
        """Write all bytes, and return their number."""
        self._file.write(piece)
        self.sums.add(piece)
        return memoryview(piece).nbytes

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.sums.size_bytes


def block_digest(block: Any) -> bytes:
    """Return the digest of one block."""
    return xxhash.xxh3_64_digest(block)


def checksums_of(warehouse: Warehouse, path: str, read: Callable[[int], None] | None = None) -> Checksums:
    """Return the checksums of the file at ``path``, which is read a piece at a time.

    ``read`` is called with the size of each piece before the next one is read.

    Raise ``FileNotFoundError`` and other ``OSError``.
    """
    sums = Sums()
    with warehouse.filesystem.open_input_file(path) as source:
        while piece := source.read_buffer(warehouse.piece_bytes):
            sums.add(piece)
            if read is not None:
                read(piece.size)
    return sums.checksums
