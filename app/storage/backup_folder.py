"""A folder of backups: the files that they name, each once, and for each backup a dump of the catalog."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.core.errors import Conflict, Invalid
from app.core.table.upkeep.damage import DamagedFile, DamageReason, NamedFile
from app.files.checksums import SummedSink
from app.files.layout import Warehouse, sync_folder
from app.files.named_files import missing, not_now
from app.files.object_stores import reason_of_store

_FILES, _DUMPS, _SUFFIX, _WRITING, _LOCK = "warehouse", "catalogs", ".jsonl.gz", ".writing", "backup.lock"


@dataclass(frozen=True)
class BackedUpFile:
    """A file of a backup, by its path in the warehouse, with its digest (xxh3-128) where the catalog has one."""

    path: str
    size_bytes: int
    digest: str | None


@dataclass(frozen=True)
class BackupHead:
    """The head of a backup: its time (UTC, which is its name), the version that took it, and the revision of the
    catalog.
    """

    name: str
    version: str
    revision: str


class BackupFolder:
    """Backups in a local folder, made on first use; only its owner may read them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = Warehouse(str(path / _FILES))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other backups into this folder out while the block runs: one that removes old backups would remove the
        files that an unfinished one names. Raise ``Conflict`` if another one runs.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.path, 0o700)
        with open(self.path / _LOCK, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(
                    f"another backup is writing to {self.path}; repeat the command when it has ended"
                ) from error
            yield

    def names(self) -> list[str]:
        """Return the backups that are complete, oldest first."""
        folder = self.path / _DUMPS
        paths = folder.iterdir() if folder.is_dir() else ()
        return sorted(path.name.removesuffix(_SUFFIX) for path in paths if path.name.endswith(_SUFFIX))

    def has(self, file: NamedFile) -> bool:
        """Return whether an earlier backup has the file; names are never used again."""
        copy = self.path / _FILES / file.path
        return copy.is_file() and copy.stat().st_size == file.size_bytes

    def keep(self, warehouse: Warehouse, file: NamedFile) -> None:
        """Copy a file of the warehouse, durably and atomically. Raise ``DamagedFile``, and ``Unavailable`` if an
        object store does not answer.
        """
        try:
            copy = _copied(warehouse, file.path, self.path / _FILES)
        except FileNotFoundError as error:
            raise missing(warehouse, file) from error
        except OSError as error:
            reason = reason_of_store(error)
            if reason is None:
                raise
            raise not_now(file, reason) from error
        if copy != (file.size_bytes, file.digest or copy[1]):
            (self.path / _FILES / file.path).unlink()
            raise DamagedFile(file, DamageReason.WRONG_CONTENT, f"it has {copy[0]} bytes of xxh3-128 {copy[1]}")

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield the file for the dump of a new backup; the backup is listed in ``names`` when the block ends. No other
        one may be written (``alone``).
        """
        folder = self.path / _DUMPS
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"*{_WRITING}"):  # by a backup that was killed
            left.unlink()
        path = folder / f"{name}{_WRITING}"
        try:
            yield path
            with open(path, "rb") as written:
                os.fsync(written.fileno())
            path.rename(folder / f"{name}{_SUFFIX}")
            sync_folder(str(folder))
        finally:
            path.unlink(missing_ok=True)

    def head(self, name: str) -> BackupHead:
        """Return the head of the backup. Raise ``Invalid`` if there is no backup of that name."""
        return BackupHead(**next(self._lines(name))["backup"])

    def files_of(self, name: str) -> Iterator[BackedUpFile]:
        """Yield the files of a backup."""
        for line in self._lines(name):
            if isinstance(line, dict) and "file" in line:
                yield BackedUpFile(**line["file"])

    def dump_of(self, name: str) -> Iterator[str]:
        """Yield the lines of a backup that ``app.catalog.dumps`` wrote."""
        with gzip.open(self._dump(name), "rt", encoding="utf-8") as lines:
            next(lines)
            for line in lines:
                if not line.startswith('{"file"'):
                    yield line

    def put_back(self, file: BackedUpFile, warehouse: Warehouse) -> None:
        """Copy a file of a backup into a warehouse, a folder or a bucket. Raise ``Invalid`` if its digest does not
        match.
        """
        copied = _put if warehouse.is_store else _copied_back
        try:
            copy = copied(self.files, file.path, warehouse)
        except FileNotFoundError as error:
            raise Invalid(f"{file.path} is not in the backup any more; restore another backup") from error
        if copy != (file.size_bytes, file.digest or copy[1]):
            raise Invalid(f"{file.path} is damaged in the backup; restore another backup")

    def forget_all_but(self, most: int) -> int:
        """Delete the oldest backups beyond ``most``, and the files that no other one names. Return how many files."""
        for name in self.names()[: -most or None]:
            self._dump(name).unlink()
        named = {file.path for name in self.names() for file in self.files_of(name)}
        root = self.path / _FILES
        unnamed = [path for path in root.rglob("*") if path.is_file() and str(path.relative_to(root)) not in named]
        for path in unnamed:
            path.unlink()
        return len(unnamed)

    def _dump(self, name: str) -> Path:
        return self.path / _DUMPS / f"{name}{_SUFFIX}"

    def _lines(self, name: str) -> Iterator[Any]:
        if name not in self.names():
            raise Invalid(f"{self.path} has no backup {name!r}; it has: {', '.join(self.names()) or 'none'}")
        with gzip.open(self._dump(name), "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def write_dump(path: Path, head: BackupHead, dumped: Iterable[str]) -> None:
    """Write the head of a backup and the dump of the catalog."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as target:
        target.write(f"{json.dumps({'backup': asdict(head)})}\n")
        target.writelines(f"{line}\n" for line in dumped)


def add_files(path: Path, files: Iterable[NamedFile]) -> None:
    """Append the names of the backup's files to its dump."""
    with gzip.open(path, "at", encoding="utf-8", compresslevel=6) as target:
        target.writelines(f"{json.dumps({'file': _said(file)})}\n" for file in files)


def _said(file: NamedFile) -> Mapping[str, Any]:
    return asdict(BackedUpFile(file.path, file.size_bytes, file.digest))


def _copied(source: Warehouse, path: str, root: Path) -> tuple[int, str]:
    """Copy the file at ``path`` into the local folder ``root``, durably and atomically. Return its size and digest."""
    target = root / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.copying")
    try:
        with source.filesystem.open_input_file(source.path(path)) as bytes_in, open(partial, "wb") as bytes_out:
            sink = SummedSink(bytes_out)
            shutil.copyfileobj(bytes_in, sink, source.piece_bytes)
            bytes_out.flush()
            os.fsync(bytes_out.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(str(target.parent))
    return sink.sums.size_bytes, sink.sums.checksums.digest


def _copied_back(source: Warehouse, path: str, target: Warehouse) -> tuple[int, str]:
    return _copied(source, path, Path(target.path()))


def _put(source: Warehouse, path: str, target: Warehouse) -> tuple[int, str]:
    """Copy the file as ``_copied`` does, into an object store, where an object appears completely and durably, or not
    at all.
    """
    with (
        source.filesystem.open_input_file(source.path(path)) as bytes_in,
        target.filesystem.open_output_stream(target.path(path)) as bytes_out,
    ):
        sink = SummedSink(bytes_out)
        shutil.copyfileobj(bytes_in, sink, source.piece_bytes)
    return sink.sums.size_bytes, sink.sums.checksums.digest
