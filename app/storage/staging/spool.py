"""Bodies of any size: small ones in memory, larger ones in a file that has no name and goes with its last reader."""

from __future__ import annotations

import mmap
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Final

from app.core.errors import Unavailable

Content = bytes | mmap.mmap
"""The bytes of a body, to be sliced and searched."""

MEMORY_BYTES = 4 * 2**20
# Each body has this much: small requests continue when large ones have taken all memory.
FREE_BYTES: Final = 2**16
_WRITE_BYTES = 2**20


class Room:
    """The memory and the disk that the bodies of a process take together while they are read; files are in ``folder``
    (where there is none, in the system's folder for temporary files). Safe to share between threads.
    """

    def __init__(self, folder: Path | None = None, memory_bytes: int = 2**28, disk_bytes: int = 2**34) -> None:
        self.folder = folder
        self._memory_bytes, self._disk_bytes = memory_bytes, disk_bytes
        self._memory = self._disk = 0
        self._lock = threading.Lock()

    @property
    def short_of_memory(self) -> bool:
        """Whether bodies should take no more memory."""
        return self._memory > self._memory_bytes

    def take_memory(self, size: int) -> None:
        """Note that ``size`` bytes more are in memory; fewer, if it is below zero."""
        with self._lock:
            self._memory += size

    def take_disk(self, size: int) -> None:
        """Take room of the disk. Raise ``Unavailable`` if there is no room for more."""
        with self._lock:
            if size > 0 and self._disk + size > self._disk_bytes:
                raise _no_room(f"{self._disk_bytes} bytes of bodies are on the disk")
            self._disk += size


def _no_room(what: str) -> Unavailable:
    return Unavailable(f"{what} while they are read, and there is room for no more; retry later")


class Spool:
    """Takes a body in parts: up to ``memory_bytes`` in memory, more than that in a file. ``close`` it at the end."""

    def __init__(self, room: Room, memory_bytes: int = MEMORY_BYTES, *, files: bool = True) -> None:
        self._room = room
        self._memory_bytes = memory_bytes
        self._files = files
        self._pending = bytearray()
        self._noted = 0  # of the pending bytes, in the room
        self._file: IO[bytes] | None = None
        self.size = 0

    def add(self, part: bytes) -> None:
        """Add the next part, in memory: ``spill`` it when it is ``due``. Raise ``Unavailable`` if there is neither
        memory nor a file for it.
        """
        self._pending += part
        self.size += len(part)
        self._note(max(0, len(self._pending) - FREE_BYTES))
        if self._noted and not self._files and self._room.short_of_memory:
            raise _no_room("the bodies of requests take too much memory")

    def _note(self, size: int) -> None:
        if size != self._noted:
            self._room.take_memory(size - self._noted)
            self._noted = size

    @property
    def due(self) -> bool:
        """Whether there is more in memory than should be."""
        if not self._files:
            return False
        most = self._memory_bytes if self._file is None else _WRITE_BYTES
        return len(self._pending) > most or (bool(self._noted) and self._room.short_of_memory)

    def spill(self) -> None:
        """Write to the file what is in memory. Raise ``Unavailable`` if there is no room for it."""
        self._room.take_disk(len(self._pending))
        try:
            if self._file is None:
                if self._room.folder is not None:
                    self._room.folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._room.folder)  # noqa: SIM115  # the mapping outlives it
            self._file.write(self._pending)
        except OSError as error:
            raise Unavailable(f"the body could not be stored: {error.strerror}; retry later") from error
        self._pending.clear()
        self._note(0)

    def content(self) -> Content:
        """Return the whole body. Raise ``Unavailable`` as ``spill`` does."""
        if self._file is None:
            return bytes(self._pending)
        self.spill()
        with self._file as file:
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file = None
        weakref.finalize(mapped, self._room.take_disk, -self.size)
        return mapped

    def close(self) -> None:
        """Release its memory and its file. A content in a file stays until its last reader has closed it."""
        self._note(0)
        self._pending = bytearray()
        if self._file is not None:
            self._room.take_disk(-self._file.tell())
            self._file.close()
            self._file = None


def read_until(content: Content, place: int) -> None:
    """Say that no one reads before ``place`` for now: the pages of a file need not stay in this process's memory."""
    if isinstance(content, mmap.mmap) and place >= mmap.PAGESIZE and hasattr(mmap, "MADV_DONTNEED"):
        content.madvise(mmap.MADV_DONTNEED, 0, place // mmap.PAGESIZE * mmap.PAGESIZE)
