"""Files that the catalog names: every byte is checked before it is decoded (docs/decisions/0024)."""

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

from app.core.errors import KeyfoldError, Unavailable
from app.core.table.history import Batch, BatchState, ChangelogFile, DataFile, HistoryFile, Run
from app.core.table.upkeep.damage import DamagedFile, DamageReason, FileKind, NamedFile
from app.files.checksums import BLOCK_BYTES, DIGEST_BYTES, Checksums, block_digest, checksums_of
from app.files.layout import Warehouse, changelog_file, data_file, history_file, staging_file
from app.files.writable import NO_ROOM, is_claimed, reason_of

logger = logging.getLogger(__name__)
CHECKED_AT_ONCE = 4  # checksums run without the interpreter's lock; more threads would only wait for the disk
_KEPT_BLOCKS = 8
# A process remembers the checked blocks of this many files, in slightly more than 1 byte a MiB.
_KNOWN_FILES = 50_000


def file_of_batch(batch: Batch) -> NamedFile:
    """Return the staging file of a batch."""
    path = "/".join(staging_file(batch.table_id, batch.file))
    return NamedFile(
        FileKind.HISTORY if batch.state is BatchState.MERGED else FileKind.STAGING,
        batch.table_id,
        path,
        batch.size_bytes,
        batch.digest,
        batch_id=batch.id,
        batch_number=batch.number,
    )


def file_of_run(table_id: str, run_id: str, file: DataFile) -> NamedFile:
    """Return a data file of a run."""
    path = "/".join(data_file(table_id, run_id, file.name))
    return NamedFile(FileKind.RUN, table_id, path, file.size_bytes, file.digest, file.block_digests, run_id=run_id)


def files_of_run(table_id: str, run: Run) -> list[NamedFile]:
    """Return the data files of a run, by token."""
    return [file_of_run(table_id, run.id, file) for file in run.files]


def file_of_history(table_id: str, file: HistoryFile) -> NamedFile:
    """Return a file of merged records."""
    path = "/".join(history_file(table_id, file.name))
    return NamedFile(FileKind.HISTORY, table_id, path, file.size_bytes, file.digest, file.block_digests)


def file_of_changelog(table_id: str, snapshot_id: int, file: ChangelogFile) -> NamedFile:
    """Return a file of the changes that a snapshot brought."""
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


def check_file(warehouse: Warehouse, file: NamedFile, read: Callable[[int], None] | None = None) -> Checksums:
    """Read and check the whole file, regardless of earlier checks; return its checksums.

    A file without a digest is checked by its size and the checksums of its pages. ``read`` is called with the size of
    each piece, and may raise.

    Raise ``DamagedFile``.
    """
    with _failures_as_damage(warehouse, file):
        actual = checksums_of(warehouse, warehouse.path(file.path), read)
        _check_size(file, actual.size_bytes)
        if file.digest is not None and actual.digest != file.digest:
            raise DamagedFile(file, DamageReason.WRONG_CONTENT, f"its bytes have xxh3-128 {actual.digest}")
    if file.digest is None:
        with opened_parquet(warehouse, file) as parquet:
            for _ in parquet.iter_batches():
                continue
    return actual


def damaged_files(warehouse: Warehouse, files: Sequence[NamedFile]) -> list[DamagedFile]:
    """Return an error for each damaged file of ``files``, in their order; a few are read at a time."""

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
    """Return all bytes of a file. Raise ``DamagedFile``."""
    with (
        _failures_as_damage(warehouse, file),
        warehouse.filesystem.open_input_file(warehouse.path(file.path)) as source,
    ):
        content = source.read_buffer()
    _check_size(file, content.size)
    if file.digest is not None and xxhash.xxh3_128_hexdigest(content) != file.digest:
        actual = f"its bytes have xxh3-128 {xxhash.xxh3_128_hexdigest(content)}"
        raise DamagedFile(file, DamageReason.WRONG_CONTENT, actual)
    return content


@contextmanager
def decoding(warehouse: Warehouse, file: NamedFile) -> Iterator[None]:
    """Raise ``DamagedFile`` if the body cannot decode the file, and its digest is unknown or wrong."""
    with _failures_as_damage(warehouse, file):
        yield


@contextmanager
def opened_parquet(warehouse: Warehouse, file: NamedFile, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Yield the file, to be read in part: a block is checked when the process first reads it since the file last
    changed, a page whenever it is read. The columns ``dictionaries`` are read as dictionaries.

    Raise ``DamagedFile``, also while it is read, and ``Unavailable`` if a remote file system does not answer.
    """
    with (
        _failures_as_damage(warehouse, file),
        warehouse.filesystem.open_input_file(warehouse.path(file.path)) as source,
    ):
        _check_size(file, source.size())
        checked = _checked_source(warehouse, source, file)
        if checked is None:
            yield pq.ParquetFile(source, read_dictionary=list(dictionaries), page_checksum_verification=True)
            return
        try:
            yield pq.ParquetFile(checked, read_dictionary=list(dictionaries), page_checksum_verification=True)
        except Exception as error:
            # What Arrow makes of an error that its source raises.
            if checked.damage is not None and error is not checked.damage:
                raise checked.damage from error
            raise


def _check_size(file: NamedFile, size: int) -> None:
    if size != file.size_bytes:
        raise DamagedFile(file, DamageReason.WRONG_SIZE, f"{size} bytes")


def _checked_source(warehouse: Warehouse, source: pa.NativeFile, file: NamedFile) -> _CheckedSource | None:
    """Return a source that checks the bytes of ``source`` as they are read; None if all are checked, or there is no
    digest to compare them with.
    """
    if warehouse.is_store:
        return _FetchedSource(source, file) if file.block_digests else None
    blocks = _checked_blocks(file, warehouse.root, _identity(warehouse, file))
    return _CheckedSource(source, file, blocks) if 0 in blocks else None


def _identity(warehouse: Warehouse, file: NamedFile) -> tuple[int, ...]:
    """Return values that change when the checked file is written to or replaced, if the file system has such values."""
    if not warehouse.local:
        return ()
    status = os.stat(warehouse.path(file.path))
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@lru_cache(maxsize=_KNOWN_FILES)
def _checked_blocks(file: NamedFile, root: str, identity: tuple[int, ...]) -> bytearray:  # noqa: ARG001  # the key
    """Return which blocks of the file this process has found intact: one byte each, 1 if intact."""
    return bytearray(len(file.block_digests or b"") // DIGEST_BYTES)


class _CheckedSource(io.RawIOBase):
    """The bytes of a file; each block is checked before any of it is returned. ``damage`` is the error that it raised,
    since Arrow may replace it by another one.
    """

    def __init__(self, source: pa.NativeFile, file: NamedFile, checked: bytearray) -> None:
        super().__init__()
        self.damage: DamagedFile | None = None
        self._source = source
        self._file = file
        self._checked = checked
        self._place = 0

    def readable(self) -> bool:
        """Return True: it gives bytes."""
        return True

    def seekable(self) -> bool:
        """Return True: it is read from any place."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._file.size_bytes}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Return the position."""
        return self._place

    def read(self, size: int = -1) -> Any:
        """Return up to ``size`` bytes. Raise ``DamagedFile``."""
        rest = max(0, self._file.size_bytes - self._place)
        count = rest if size < 0 else min(size, rest)
        if not count:
            return b""
        blocks = range(self._place // BLOCK_BYTES, (self._place + count - 1) // BLOCK_BYTES + 1)
        piece = self._piece(blocks, count)
        self._place += len(piece)
        return piece

    def _piece(self, blocks: range, count: int) -> Any:
        """Return the next ``count`` bytes, which are in ``blocks``: each of these is checked as a whole."""
        for block in blocks:
            if not self._checked[block]:
                self._check(block, self._source.read_at(BLOCK_BYTES, block * BLOCK_BYTES))
                self._checked[block] = 1
        return self._source.read_at(count, self._place)

    def _check(self, block: int, content: Any) -> None:
        place = block * DIGEST_BYTES
        if block_digest(content) != (self._file.block_digests or b"")[place : place + DIGEST_BYTES]:
            difference = f"other bytes than were written, from byte {block * BLOCK_BYTES} on"
            self.damage = DamagedFile(self._file, DamageReason.WRONG_CONTENT, difference)
            raise self.damage


class _FetchedSource(_CheckedSource):
    """A checked file in an object store, where each read is a request: blocks that are needed together come in one
    request and are always checked. The last blocks are cached, since a column often begins in the block where another
    ends.
    """

    def __init__(self, source: pa.NativeFile, file: NamedFile) -> None:
        super().__init__(source, file, bytearray())
        self._kept: dict[int, memoryview] = {}

    def _piece(self, blocks: range, count: int) -> Any:
        missing = [block for block in blocks if block not in self._kept]
        if missing:
            self._fetch(range(missing[0], missing[-1] + 1))
        start = self._place - blocks[0] * BLOCK_BYTES
        piece = memoryview(b"".join(self._kept[block] for block in blocks))[start : start + count]
        for block in [*self._kept][:-_KEPT_BLOCKS]:
            del self._kept[block]
        return piece

    def _fetch(self, blocks: range) -> None:
        content = memoryview(self._source.read_at(len(blocks) * BLOCK_BYTES, blocks[0] * BLOCK_BYTES))
        for number, block in enumerate(blocks):
            part = content[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
            self._check(block, part)
            self._kept.pop(block, None)
            self._kept[block] = part


@contextmanager
def _failures_as_damage(warehouse: Warehouse, file: NamedFile) -> Iterator[None]:
    """Raise failures of reading a file as its damage.

    A failure to decode its bytes is damage only if it has no known digest.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise missing(warehouse, file) from error
    except OSError as error:
        if error.errno in NO_ROOM:  # of what is written meanwhile, from what is read
            raise
        if not warehouse.local:  # it is unknown whether it is the file
            logger.warning("%s cannot be read: %s", file.path, reason_of(error))
            raise not_now(file, reason_of(error)) from error
        cause = (error.strerror or str(error)).replace(warehouse.path(file.path), file.path)
        raise DamagedFile(file, DamageReason.UNREADABLE, cause) from error
    except (pa.ArrowException, ValueError, KeyError) as error:  # a footer may name other columns
        if file.digest is None:
            raise DamagedFile(file, DamageReason.UNREADABLE, str(error)) from error
        check_file(warehouse, file)  # it may have decayed since this process found it intact
        raise


def missing(warehouse: Warehouse, file: NamedFile) -> KeyfoldError:
    """Return the error for a ``file`` that is not found: it is damaged, or the whole warehouse is missing."""
    try:
        claimed = is_claimed(warehouse) if warehouse.is_store or (warehouse.local and warehouse.marked) else True
    except OSError as error:
        return not_now(file, reason_of(error))
    return DamagedFile(file, DamageReason.MISSING, "no file") if claimed else not_now(file, "the warehouse is missing")


def not_now(file: NamedFile, reason: str) -> Unavailable:
    """Return the error for a ``file`` that cannot be read at present, for a reason outside the file."""
    return Unavailable(f"{file.path} cannot be read now: {reason}; retry later")
