"""Whether the warehouse exists, can be written, and has room; and the errors if not."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from pyarrow import fs

from app.core.errors import FaultCode, NotStored, Unavailable, Violation
from app.files.folders import entries, remove
from app.files.layout import Warehouse, names_table
from app.files.object_stores import reason_of_store

MARK: Final = "_keyfold"  # a file in the warehouse: a folder without it is a wrong one, such as an empty mount point
_TRIAL: Final = "_keyfold-trial"
_REASONS: Final[Mapping[int, str]] = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its disk quota is used up",
    errno.EROFS: "it is read-only",
    errno.EACCES: "the service may not write there",
    errno.EPERM: "the service may not write there",
    errno.ENOENT: "it is not there",
    errno.ENOTDIR: "a file is in the place of a folder",
    errno.EEXIST: "a file is in the place of a folder",
    errno.EIO: "its disk reports an error of input or output",
    errno.ESTALE: "its network disk has lost it",
}
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_FIX: Final = "see that the warehouse is there, writable and has room, then post again"


def reason_of(error: OSError) -> str:
    """Return why a file could not be written or read, in words; no path."""
    known = _REASONS.get(error.errno or 0) or reason_of_store(error)
    return known or (error.strerror or str(error).partition("\n")[0] or type(error).__name__)[:200]


def unwritable(reason: str) -> NotStored:
    """Return the error: the warehouse cannot be written, for this ``reason``."""
    message = f"the warehouse cannot be written: {reason}; nothing was stored"
    return NotStored(message, violations=[Violation("", FaultCode.WAREHOUSE_NOT_WRITABLE, message, _FIX)])


@contextmanager
def writing() -> Iterator[None]:
    """Turn an ``OSError`` of the body, which writes to the warehouse, into ``NotStored``. ``FileNotFoundError`` is
    raised unchanged, since the table may have been dropped.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unwritable(reason_of(error)) from error


def claim(warehouse: Warehouse) -> None:
    """Write the mark into the warehouse, whose folder is created if it is missing. Raise ``OSError``."""
    if not warehouse.is_store:
        warehouse.filesystem.create_dir(warehouse.path(), recursive=True)
    warehouse.filesystem.open_output_stream(warehouse.path(MARK)).close()


def is_claimed(warehouse: Warehouse) -> bool:
    """Return whether the mark exists. Raise ``OSError`` if it is unknown."""
    if warehouse.local:
        return os.path.isfile(warehouse.path(MARK))
    return bool(warehouse.filesystem.get_file_info(warehouse.path(MARK)).type is fs.FileType.File)


def check_present(warehouse: Warehouse) -> None:
    """Raise ``NotStored`` if the warehouse is a local folder and is missing."""
    if warehouse.local and not is_claimed(warehouse):
        raise unwritable(_REASONS[errno.ENOENT])


def check_not_gone(warehouse: Warehouse) -> None:
    """Raise ``Unavailable`` if the warehouse is a marked local folder, and its mark is missing: then its content is
    meaningless.
    """
    if warehouse.marked and warehouse.local and not is_claimed(warehouse):
        raise Unavailable("the warehouse is missing: check that its disk is mounted; nothing was changed; retry later")


def holds_table(warehouse: Warehouse, table_id: str) -> bool:
    """Return whether there is a folder of the table. Raise ``OSError`` if it is unknown."""
    return bool(warehouse.filesystem.get_file_info(warehouse.path(table_id)).type is fs.FileType.Directory)


def holds_tables(warehouse: Warehouse) -> bool:
    """Return whether there is a folder of any table; a new disk may hold others (``lost+found``).
    Raise ``OSError`` if it is unknown.
    """
    listed = entries(warehouse, warehouse.path())
    return any(entry.is_folder and names_table(entry.name) for entry in listed)


def try_writing(warehouse: Warehouse) -> str | None:
    """Return why the warehouse cannot be written; None if a file could be written there just now."""
    path = warehouse.path(_TRIAL)
    try:
        if not is_claimed(warehouse):
            return _REASONS[errno.ENOENT]
        if warehouse.local:
            with open(path, "wb") as file:
                file.write(b"\0" * 4096)  # a block: where there is none a full disk would take an empty file
                file.flush()
                os.fsync(file.fileno())
        else:
            with warehouse.filesystem.open_output_stream(path) as stream:
                stream.write(b"\0")
    except OSError as error:
        return reason_of(error)
    finally:
        if not warehouse.is_store:  # there the next one takes its place: three requests less
            with suppress(OSError):
                remove(warehouse, path)
    return None


def now_of(warehouse: Warehouse) -> datetime:
    """Return the time of the clock that dates files of the warehouse: that of the object store, or of the file system,
    which may be another machine's. Without a mark it is this machine's. Raise ``OSError``.
    """
    if warehouse.is_store:
        path = warehouse.path(_TRIAL)
        with warehouse.filesystem.open_output_stream(path) as stream:
            stream.write(b"\0")
        written: datetime = warehouse.filesystem.get_file_info(path).mtime
        return written
    if warehouse.marked and warehouse.local:
        os.utime(warehouse.path(MARK))  # no file is written, for the disk may be full
        return datetime.fromtimestamp(os.stat(warehouse.path(MARK)).st_mtime, UTC)
    return datetime.now(UTC)


def free_bytes(warehouse: Warehouse) -> int | None:
    """Return the room on the warehouse's disk for this user; None for a remote warehouse, or if unknown."""
    if not warehouse.local:
        return None
    return free_bytes_at(warehouse.path())


def free_bytes_at(folder: str) -> int | None:
    """Return the room on the disk of a folder for this user; None if it is unknown."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
