"""Bodies of any size: small ones in memory, larger ones in a file that has no name and goes with its last reader."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import IO

from app.core.errors import Unavailable

Content = bytes | mmap.mmap
"""The bytes of a body, to be sliced and searched."""

MEMORY_BYTES = 4 * 2**20
_WRITE_BYTES = 2**20


class Spool:
    """Takes a body in parts: up to ``memory_bytes`` in memory, more than that in a file in ``folder`` (where there is
    none, in the system's folder for temporary files).
    """

    def __init__(self, folder: Path | None = None, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._pending = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    def add(self, part: bytes) -> None:
        """The next part, in memory: ``spill`` it when it is ``due``."""
        self._pending += part
        self.size += len(part)

    @property
    def due(self) -> bool:
        """Whether there is more in memory than should be."""
        return len(self._pending) > (self._memory_bytes if self._file is None else _WRITE_BYTES)

    def spill(self) -> None:
        """Write to the file what is in memory. Raises ``Unavailable`` when there is no room for it."""
        try:
            if self._file is None:
                if self._folder is not None:
                    self._folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # the mapping outlives it
            self._file.write(self._pending)
        except OSError as error:
            raise Unavailable(f"the body could not be stored: {error.strerror}; post it again later") from error
        self._pending.clear()

    def content(self) -> Content:
        """The whole body. Raises ``Unavailable`` as ``spill`` does."""
        if self._file is None:
            return bytes(self._pending)
        self.spill()
        with self._file as file:
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_until(content: Content, place: int) -> None:
    """Say that nobody reads before ``place`` for now: the pages of a file need not stay in this process's memory."""
    if isinstance(content, mmap.mmap) and place >= mmap.PAGESIZE and hasattr(mmap, "MADV_DONTNEED"):
        content.madvise(mmap.MADV_DONTNEED, 0, place // mmap.PAGESIZE * mmap.PAGESIZE)
