"""The contents of a folder in the warehouse, and their removal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from pyarrow import fs

from app.files.layout import Warehouse

# Parallel requests to a store. Each takes some tens of milliseconds, all of them waiting.
REQUESTS_AT_ONCE: Final = 16
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Entry:
    """A file or folder; ``changed_at`` is None if the file system keeps no time (folders of object stores)."""

    path: str
    is_folder: bool
    changed_at: datetime | None

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


def entries(warehouse: Warehouse, path: str, *, recursive: bool = False) -> list[Entry]:
    """Return the entries of the folder at ``path``; empty if there is no such folder."""
    selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
    listing = warehouse.filesystem.get_file_info(selector)
    return [Entry(info.path, info.type is fs.FileType.Directory, info.mtime) for info in listing]


def remove(warehouse: Warehouse, path: str) -> bool:
    """Remove a file or folder; return whether it existed. Other processes may remove it at the same time."""
    if warehouse.filesystem.get_file_info(path).type is not fs.FileType.Directory:
        return remove_file(warehouse, path)
    try:
        warehouse.filesystem.delete_dir(path)
    except FileNotFoundError:
        return False
    return True


def remove_file(warehouse: Warehouse, path: str) -> bool:
    """Remove a file; return whether it existed."""
    try:
        warehouse.filesystem.delete_file(path)
    except FileNotFoundError:
        return False
    return True


def at_once(warehouse: Warehouse, ask: Callable[[_Item], _Answer], items: Sequence[_Item]) -> Sequence[_Answer]:
    """Return the result of ``ask`` for each item; several run at a time if the warehouse is an object store. Raise
    what ``ask`` raises.
    """
    if not warehouse.is_store or len(items) < 2:
        return [ask(item) for item in items]
    with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(items))) as pool:
        return list(pool.map(ask, items))
