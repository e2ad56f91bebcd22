"""The places of a table's files: paths by id below the warehouse, never by name."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyarrow import fs

from app.core.table.history import CHANGELOG_FOLDER, HISTORY_FOLDER
from app.core.table.records import PARTITION_COLUMN
from app.files.object_stores import SCHEME, SPARK_SCHEME, is_object_store, read_uri

_LOCAL_BYTES, _FETCHED_BYTES = 2**20, 2**23
# The prefix of the folder of a trial table.
TRIAL_PREFIX = "trial-"
_TABLE_ID = re.compile("[0-9a-f]{32}")
_C = ctypes.CDLL(None, use_errno=True)
# The f_type of statfs(2): ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, overlayfs, ZFS.
_SYNCED_WHOLE = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994, 0x794C7630, 0x2FC12FC1})


@dataclass(frozen=True)
class Warehouse:
    """The folder that holds all tables' files: a local path or a URI that pyarrow's file systems know (``s3://…``).

    ``marked``: services have left a mark in it; a local folder without the mark is a wrong one, such as the empty
    mount point of a missing disk (``app.files.writable``). Raises ``ValueError`` on first use for an invalid URI.
    """

    root: str
    marked: bool = False

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        if self.is_store:
            bucket = read_uri(self.root)
            return bucket.open(), bucket.path
        if "://" in self.root:
            filesystem, path = fs.FileSystem.from_uri(self.root)
            return filesystem, path
        return fs.LocalFileSystem(), str(Path(self.root).resolve())

    @property
    def filesystem(self) -> fs.FileSystem:
        """The file system that holds the warehouse."""
        return self._opened[0]

    @property
    def local(self) -> bool:
        """Whether the warehouse is on this machine's file system."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def path(self, *segments: str) -> str:
        """Return the path of a file or folder on ``filesystem``."""
        return "/".join((self._opened[1].rstrip("/"), *segments))

    @property
    def is_store(self) -> bool:
        """Whether the warehouse is the bucket of an object store: it has no folders, no renames and no partial files,
        and completed writes are durable.
        """
        return is_object_store(self.root)

    @property
    def address(self) -> str:
        """The address with which another process opens the same warehouse."""
        return self.path() if "://" not in self.root else self.root

    @property
    def piece_bytes(self) -> int:
        """The bytes per read of a whole file: in an object store each piece is a request."""
        return _LOCAL_BYTES if self.local else _FETCHED_BYTES

    def uri(self, *segments: str) -> str:
        """Return the URI of a file or folder, for clients, without %-escapes."""
        if self.local:
            return f"file://{self.path(*segments)}"
        if self.is_store:
            return f"{SCHEME}{self.path(*segments)}"
        return "/".join((self.root.rstrip("/"), *segments))

    def spark_uri(self, *segments: str) -> str:
        """Return the URI of a file or folder in Spark's spelling."""
        uri = self.uri(*segments)
        return f"{SPARK_SCHEME}{uri.removeprefix(SCHEME)}" if self.is_store else uri


def names_table(folder: str) -> bool:
    """Return whether a folder of the warehouse may be that of a table, which is named by the table's id. Other folders
    belong to others.
    """
    return _TABLE_ID.fullmatch(folder) is not None


def table_folder(table_id: str) -> tuple[str, ...]:
    """Return the segments of a table's folder."""
    return (table_id,)


def staging_file(table_id: str, name: str) -> tuple[str, ...]:
    """Return the segments of a staging file."""
    return (table_id, "staging", name)


def history_file(table_id: str, name: str) -> tuple[str, ...]:
    """Return the segments of a history file."""
    return (table_id, HISTORY_FOLDER, name)


def run_folder(table_id: str, run_id: str) -> tuple[str, ...]:
    """Return the segments of a run's folder. The runs that one job wrote in many partitions, ``<folder>.<partition
    token>``, share a folder.
    """
    folder, _, partition = run_id.partition(".")
    inner = (f"{PARTITION_COLUMN}={partition}",) if partition else ()
    return (table_id, "runs", folder, *inner)


def run_in(folders: Sequence[str]) -> str:
    """Return the id of the run whose files are in ``folders``, those of ``run_folder`` below ``runs``."""
    return ".".join(folder.removeprefix(f"{PARTITION_COLUMN}=") for folder in folders)


def changelog_folder(table_id: str, folder: str) -> tuple[str, ...]:
    """Return the segments of the folder that holds the changes of one merge or compaction."""
    return (table_id, CHANGELOG_FOLDER, folder)


def changelog_file(table_id: str, name: str) -> tuple[str, ...]:
    """Return the segments of one changelog file; ``name`` holds its folder."""
    return (*changelog_folder(table_id, name.partition("/")[0]), name.partition("/")[2])


def iceberg_file(table_id: str, *path: str) -> tuple[str, ...]:
    """Return the segments of a file below the folder of the table's Iceberg metadata, or of a folder."""
    return (table_id, "iceberg", *path)


def data_file(table_id: str, run_id: str, name: str) -> tuple[str, ...]:
    """Return the segments of one data file of a run."""
    return (*run_folder(table_id, run_id), name)


def delta_log(table_id: str, *name: str) -> tuple[str, ...]:
    """Return the segments of a table's Delta log, or of a file in it."""
    return (*table_folder(table_id), "_delta_log", *name)


def sync_folder(path: str) -> None:
    """Make the content of a local folder (or file) durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_new_folders(warehouse: Warehouse, *segments: str) -> None:
    """Make the entries of a table's folder, and of the folders above it, durable in their parents."""
    for depth in range(len(segments)):
        sync_folder(warehouse.path(*segments[:depth]))


def _kind_of(folder: str) -> int:
    """Return the file system's type, as statfs(2) reports it; 0 if it is unknown."""
    status = ctypes.create_string_buffer(1024)
    known = _C.statfs(os.fsencode(folder), status) == 0
    return int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) if known else 0


def sync_file_system(folder: str) -> bool:
    """Make all writes to the file system of ``folder`` durable. Return whether this file system is known to support
    it; those in user space may ignore the call. Raise ``OSError`` if something could not be written.
    """
    syncfs = getattr(_C, "syncfs", None)
    if syncfs is None or _kind_of(folder) not in _SYNCED_WHOLE:
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(descriptor)
    return True
