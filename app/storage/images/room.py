"""The room that images take on the disk: bounded, the least recently used leave first (decision 17)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.storage.images.requests import SUFFIX

RECENT_SECONDS = 300.0  # what was used meanwhile leaves for no other: two tables would push each other out forever


@dataclass(frozen=True)
class Stored:
    """An image file; ``used_at`` is its modification time, which readers renew."""

    path: Path
    size_bytes: int
    used_at: float


def stored_images(folder: Path) -> Iterator[Stored]:
    """Yield every image below the folder of images."""
    for path in folder.glob(f"*/*/*{SUFFIX}"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        yield Stored(path, status.st_size, status.st_mtime)


class Room:
    """The room below ``limit`` bytes. Only one process makes images, so it keeps the free bytes in memory: tens of
    thousands of files are listed only when those do not suffice.
    """

    def __init__(self, folder: Path, limit: int, recent_seconds: float = RECENT_SECONDS) -> None:
        self._folder = folder
        self._limit = limit
        self._recent_seconds = recent_seconds
        self._free = -1

    def fits(self, needed: int) -> bool:
        """Return whether there is room for ``needed`` bytes; remove the least recently used images to make it.

        Images that were used lately stay. If the others do not make enough room, none is removed.
        """
        if needed > self._free:
            self._free = self._make(needed)
        return needed <= self._free

    def take(self, size_bytes: int) -> None:
        """Note that an image of so many bytes was made."""
        self._free -= size_bytes

    def _make(self, needed: int) -> int:
        """Return the free bytes, at least ``needed`` if images can be removed for them."""
        images = sorted(stored_images(self._folder), key=lambda image: image.used_at)
        free = available = self._limit - sum(image.size_bytes for image in images)
        before = time.time() - self._recent_seconds
        leaving = []
        for image in images:
            if free >= needed:
                break
            if image.used_at <= before:
                leaving.append(image)
                free += image.size_bytes
        if free < needed:
            return available
        for image in leaving:
            image.path.unlink(missing_ok=True)
        return free


def touch(path: Path) -> bool:
    """Count an image as used now; whether it is still there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True
