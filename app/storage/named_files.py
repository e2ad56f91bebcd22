"""Files that the catalog names, read so that a damaged byte is noticed: no byte is decoded that was not checked
(docs/decisions/0024).
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from app.core.errors import Unavailable
from app.core.table.damage import DamagedFile, DamageReason, FileKind, NamedFile
from app.core.table.history import Batch, ChangelogFile, DataFile, Run
from app.storage.checksums import BLOCK_BYTES, DIGEST_BYTES, block_digest, checksums_of
from app.storage.layout import Warehouse, changelog_file, data_file, staging_file
from app.storage.writable import check_not_gone

logger = logging.getLogger(__name__)
CHECKED_AT_ONCE = 4  # summing up bytes leaves the interpreter to others; more of them would only wait for the disk
_KNOWN_FILES = 50_000  # of which a process remembers which blocks it has checked: a bit more than a byte a MiB


def file_of_batch(batch: Batch) -> NamedFile:
    """The staging file of a batch."""
    path = "/".join(staging_file(batch.table_id, batch.file))
    return NamedFile(
        FileKind.STAGING,
        batch.table_id,
        path,
        batch.size_bytes,
        batch.digest,
        batch_id=batch.id,
        batch_number=batch.number,
    )


def file_of_run(table_id: str, run_id: str, file: DataFile) -> NamedFile:
    """A data file of a run."""
    path = "/".join(data_file(table_id, run_id, file.name))
    return NamedFile(FileKind.RUN, table_id, path, file.size_bytes, file.digest, file.block_digests, run_id=run_id)


def files_of_run(table_id: str, run: Run) -> list[NamedFile]:
    """The data files of a run, by token."""
    return [file_of_run(table_id, run.id, file) for file in run.files]


def file_of_changelog(table_id: str, snapshot_id: int, file: ChangelogFile) -> NamedFile:
    """A file of the changes that a snapshot brought."""
    path = "/".join(changelog_file(table_id, file.name))
    return NamedFile(
        FileKind.CHANGELOG,
        table_id,
        path,
        file.size_bytes,
        file.digest,
        file.block_digests,
        snapshot_id=snapshot_id,
    )


def check_file(warehouse: Warehouse, file: NamedFile, read: Callable[[int], None] | None = None) -> None:
    """Read all of a file, whatever was checked before, and compare. One that nobody has a digest of is compared by its
    size and the checksums of its pages. ``read`` is told of the bytes as they are read, and may raise.

    Raises ``DamagedFile``.
    """
    with _told(warehouse, file):
        found = checksums_of(warehouse, warehouse.path(file.path), read)
        _check_size(file, found.size_bytes)
        if file.digest is not None and found.digest != file.digest:
            raise DamagedFile(file, DamageReason.WRONG_CONTENT, f"its bytes have xxh3-128 {found.digest}")
    if file.digest is None:
        with opened_parquet(warehouse, file) as parquet:
            for _ in parquet.iter_batches():
                continue


def damaged_files(warehouse: Warehouse, files: Sequence[NamedFile]) -> list[DamagedFile]:
    """What is wrong with which of ``files``, in their order, a few at a time."""

    def look(file: NamedFile) -> DamagedFile | None:
        try:
            check_file(warehouse, file)
        except DamagedFile as error:
            return error
        return None

    if not files:
        return []
    with ThreadPoolExecutor(min(CHECKED_AT_ONCE, len(files))) as pool:
        return [error for error in pool.map(look, files) if error is not None]


def read_whole(warehouse: Warehouse, file: NamedFile) -> pa.Buffer:
    """All bytes of a file. Raises ``DamagedFile``."""
    with _told(warehouse, file), warehouse.filesystem.open_input_file(warehouse.path(file.path)) as source:
        content = source.read_buffer()
    _check_size(file, content.size)
    if file.digest is not None and xxhash.xxh3_128_hexdigest(content) != file.digest:
        found = f"its bytes have xxh3-128 {xxhash.xxh3_128_hexdigest(content)}"
        raise DamagedFile(file, DamageReason.WRONG_CONTENT, found)
    return content


@contextmanager
def decoding(warehouse: Warehouse, file: NamedFile) -> Iterator[None]:
    """What is decoded of a file that nobody has a digest of may mean nothing: that is ``DamagedFile``, too."""
    with _told(warehouse, file):
        yield


@contextmanager
def opened_parquet(warehouse: Warehouse, file: NamedFile) -> Iterator[pq.ParquetFile]:
    """The file, to be read in part: a block is checked when the process first reads it since the file last changed, a
    page whenever it is read.

    Raises ``DamagedFile``, also while it is read, and ``Unavailable`` when another file system than this machine's does
    not answer.
    """
    with _told(warehouse, file), warehouse.filesystem.open_input_file(warehouse.path(file.path)) as source:
        _check_size(file, source.size())
        blocks = _checked_blocks(file, warehouse.root, _identity(warehouse, file))
        if 0 not in blocks:  # all are checked, or there is nothing to check them by
            yield pq.ParquetFile(source, page_checksum_verification=True)
            return
        checked = _CheckedSource(source, file, blocks)
        try:
            yield pq.ParquetFile(checked, page_checksum_verification=True)
        except Exception as error:
            # Whatever Arrow makes of an error that its source raises.
            if checked.damage is not None and error is not checked.damage:
                raise checked.damage from error
            raise


def _check_size(file: NamedFile, size: int) -> None:
    if size != file.size_bytes:
        raise DamagedFile(file, DamageReason.WRONG_SIZE, f"{size} bytes")


def _identity(warehouse: Warehouse, file: NamedFile) -> tuple[int, ...]:
    """What tells a file that was written to, or put back, from the one that was checked; objects of object stores never
    change.
    """
    if not warehouse.local:
        return ()
    found = os.stat(warehouse.path(file.path))
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino


@lru_cache(maxsize=_KNOWN_FILES)
def _checked_blocks(file: NamedFile, root: str, identity: tuple[int, ...]) -> bytearray:  # noqa: ARG001  # the key
    """Which blocks of the file this process has found well: one byte each, 1 where it has."""
    return bytearray(len(file.block_digests or b"") // DIGEST_BYTES)


class _CheckedSource(io.RawIOBase):
    """The bytes of a file, each block of which is checked before any of it is given out. ``damage`` is what it raised:
    whoever reads it may not pass it on as it was.
    """

    def __init__(self, source: pa.NativeFile, file: NamedFile, checked: bytearray) -> None:
        super().__init__()
        self.damage: DamagedFile | None = None
        self._source = source
        self._file = file
        self._checked = checked
        self._place = 0

    def readable(self) -> bool:
        """It gives bytes."""
        return True

    def seekable(self) -> bool:
        """From any place."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on from there."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._file.size_bytes}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Where the next bytes come from."""
        return self._place

    def read(self, size: int = -1) -> Any:
        """Up to ``size`` bytes. Raises ``DamagedFile``."""
        rest = max(0, self._file.size_bytes - self._place)
        count = rest if size < 0 else min(size, rest)
        if not count:
            return b""
        for block in range(self._place // BLOCK_BYTES, (self._place + count - 1) // BLOCK_BYTES + 1):
            if not self._checked[block]:
                self._check(block)
        piece = self._source.read_at(count, self._place)
        self._place += len(piece)
        return piece

    def _check(self, block: int) -> None:
        """Blocks are checked from the beginning of each to its end, whatever part is asked for."""
        first, place = block * BLOCK_BYTES, block * DIGEST_BYTES
        expected = (self._file.block_digests or b"")[place : place + DIGEST_BYTES]
        if block_digest(self._source.read_at(BLOCK_BYTES, first)) != expected:
            found = f"other bytes than were written, from byte {first} on"
            self.damage = DamagedFile(self._file, DamageReason.WRONG_CONTENT, found)
            raise self.damage
        self._checked[block] = 1


@contextmanager
def _told(warehouse: Warehouse, file: NamedFile) -> Iterator[None]:
    """What goes wrong with a file is its damage; what its bytes mean only where nobody has a digest of them."""
    try:
        yield
    except FileNotFoundError as error:
        check_not_gone(warehouse)
        raise DamagedFile(file, DamageReason.MISSING, "no file") from error
    except OSError as error:
        told = (error.strerror or str(error)).replace(warehouse.path(file.path), file.path)
        if not warehouse.local:  # nobody knows whether it is the file
            logger.warning("%s cannot be read", file.path, exc_info=True)
            raise Unavailable(f"{file.path} cannot be read now; try again later") from error
        raise DamagedFile(file, DamageReason.UNREADABLE, told) from error
    except (pa.ArrowException, ValueError) as error:
        if file.digest is None:
            raise DamagedFile(file, DamageReason.UNREADABLE, str(error)) from error
        check_file(warehouse, file)  # it may have rotted since this process found it well
        raise
