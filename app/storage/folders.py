"""What lies in a folder of the warehouse, and its removal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyarrow import fs

from app.storage.layout import Warehouse


@dataclass(frozen=True)
class Entry:
    """A file or folder; ``changed_at`` is None where the file system keeps no time (folders of object stores)."""

    path: str
    is_folder: bool
    changed_at: datetime | None

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


def entries(warehouse: Warehouse, path: str, *, recursive: bool = False) -> list[Entry]:
    """What is in the folder at ``path``; nothing where there is no such folder."""
    selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
    found = warehouse.filesystem.get_file_info(selector)
    return [Entry(one.path, one.type is fs.FileType.Directory, one.mtime) for one in found]


def remove(warehouse: Warehouse, path: str) -> bool:
    """Whether the file or folder was still there; others may remove it at the same time."""
    filesystem = warehouse.filesystem
    try:
        if filesystem.get_file_info(path).type is fs.FileType.Directory:
            filesystem.delete_dir(path)
        else:
            filesystem.delete_file(path)
    except FileNotFoundError:
        return False
    return True
