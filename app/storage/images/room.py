"""The room that images take on the disk: bounded, the least recently used leave first (decision 17)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.storage.images.requests import SUFFIX

RECENT_SECONDS = 300.0  # what was used meanwhile leaves for no other: two tables would push each other out for ever


@dataclass(frozen=True)
class Stored:
    """An image file; ``used_at`` is its time of change, which who reads it renews."""

    path: Path
    size_bytes: int
    used_at: float


def stored_images(folder: Path) -> Iterator[Stored]:
    """Every image below the folder of images."""
    for path in folder.glob(f"*/*/*{SUFFIX}"):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        yield Stored(path, found.st_size, found.st_mtime)


def make_room(folder: Path, needed: int, limit: int, recent_seconds: float = RECENT_SECONDS) -> bool:
    """Whether ``needed`` bytes fit below ``limit``, after the least recently used images have left for them.

    None leaves in vain, and none that was used in the last ``recent_seconds``.
    """
    images = sorted(stored_images(folder), key=lambda one: one.used_at)
    excess = sum(one.size_bytes for one in images) + needed - limit
    before = time.time() - recent_seconds
    leaving = []
    for one in images:
        if excess <= 0:
            break
        if one.used_at <= before:
            leaving.append(one)
            excess -= one.size_bytes
    if excess > 0:
        return False
    for one in leaving:
        one.path.unlink(missing_ok=True)
    return True


def touch(path: Path) -> bool:
    """Count an image as used now; whether it is still there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True
