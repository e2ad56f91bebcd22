"""Files that a task writes: state rows of runs, one file in each partition, and changes."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.row import LIVE_COLUMN
from app.core.rules.rule import TotalBounds
from app.core.table.history import ChangelogFile, DataFile
from app.core.table.keys import partition_text
from app.core.table.records import TOKEN_COLUMN
from app.core.table.total_ranges import UNBOUNDED, TotalRanges, joined, total_range
from app.files.checksums import BLOCK_BYTES, SummedSink
from app.files.encodings import columns_with_dictionaries, columns_with_statistics, encodings_of_shared
from app.files.layout import (
    Warehouse,
    changelog_folder,
    run_folder,
    sync_file_system,
    sync_folder,
    sync_new_folders,
)
from app.files.run_files import FEW_ROWS, MANY_ROWS, ROW_GROUP_BYTES
from app.kernel.tasks import Task, WrittenFile

_FEW: Final = 1_000  # rows, for which dictionaries and contexts of zstd would take longer than all the rest
# Largest size in memory of the rows of all partitions of a task.
_MOST_PENDING: Final = 4 * ROW_GROUP_BYTES
_MOST_OPEN: Final = 50  # files; each has contexts of a codec, and a system allows a process some hundred


def run_of(folder: str, partition: str | None) -> str:
    """Return the id of the run that holds a partition's rows of one merge or compaction."""
    return folder if partition is None else f"{folder}.{xxhash.xxh3_128_hexdigest(partition.encode())}"


class FileWriter:
    """One Parquet file, a row group at a time. Checksums are computed before bytes reach the disk."""

    def __init__(self, warehouse: Warehouse, folder: tuple[str, ...], name: str) -> None:
        self.folder, self.name = folder, name
        self.rows = 0
        self._warehouse = warehouse
        self._pending: list[pa.Table] = []
        self.pending_bytes = 0
        self._open = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._summed: SummedSink | None = None

    def add(self, rows: pa.Table) -> None:
        """Append rows; whole row groups are written."""
        self._pending.append(rows)
        self.pending_bytes += rows.nbytes
        if self.pending_bytes >= ROW_GROUP_BYTES:
            *groups, rest = _cut(pa.concat_tables(self._pending))
            for group in groups:
                self._write(group, MANY_ROWS)
            self._pending, self.pending_bytes = [rest], rest.nbytes

    @property
    def is_open(self) -> bool:
        """Whether rows were written."""
        return self._writer is not None

    def flush(self) -> None:
        """Write all added rows."""
        pending, self._pending, self.pending_bytes = self._pending, [], 0
        if pending:
            rows = pa.concat_tables(pending)
            few = self._writer is None and len(rows) < _FEW
            for group in _cut(rows):
                self._write(group, FEW_ROWS if few else MANY_ROWS)

    def close(self) -> SummedSink:
        """Write the remaining rows; return the sink with the checksums."""
        self.flush()
        assert self._summed is not None, "rows were added"
        self._open.close()
        return self._summed

    def abandon(self) -> None:
        """Close the file of a task that failed; a sweep removes it."""
        self._open.close()

    def _write(self, rows: pa.Table, how: Mapping[str, Any]) -> None:
        if self._writer is None:
            if not self._warehouse.is_store:
                self._warehouse.filesystem.create_dir(self._warehouse.path(*self.folder))
            if how.get("use_dictionary", True):
                columns = columns_with_dictionaries(rows)
                how = {**how, "use_dictionary": columns, "column_encoding": encodings_of_shared(columns)}
            path = self._warehouse.path(*self.folder, self.name)
            stream = self._open.enter_context(self._warehouse.filesystem.open_output_stream(path))
            self._summed = SummedSink(stream)
            sink = self._open.enter_context(io.BufferedWriter(self._summed, BLOCK_BYTES))
            bounded = columns_with_statistics(rows.schema)
            opened = pq.ParquetWriter(sink, rows.schema, write_page_checksum=True, write_statistics=bounded, **how)
            self._writer = self._open.enter_context(opened)
        self._writer.write_table(rows)
        self.rows += len(rows)


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    at_once = max(1, len(rows) * ROW_GROUP_BYTES // max(1, rows.nbytes))
    return (rows.slice(start, at_once) for start in range(0, max(1, len(rows)), at_once))


@dataclass
class _Open:
    """An open file of one partition."""

    file: FileWriter
    min_token: int
    max_token: int = 0
    live_rows: int = 0
    totals: TotalRanges = field(default_factory=dict)


class Output:
    """The files that a task writes. Names contain the attempt, so that a task may run twice."""

    def __init__(self, warehouse: Warehouse, task: Task, plan: MergePlan) -> None:
        self._warehouse = warehouse
        self._task = task
        self._plan = plan
        self._name = f"part-{task.place:05}-{uuid.uuid4().hex[:8]}.parquet"
        self._runs: dict[str | None, _Open] = {}
        self._finished: list[WrittenFile] = []
        self._changes: FileWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Append state rows, by token."""
        for partition, part in self._by_partition(rows):
            tokens = part.column(TOKEN_COLUMN)
            opened = self._runs.get(partition)
            if opened is None:
                folder = run_folder(self._task.table_id, run_of(self._task.output, partition))
                opened = _Open(FileWriter(self._warehouse, folder, self._next_name()), tokens[0].as_py())
                self._runs[partition] = opened
            opened.max_token = tokens[-1].as_py()
            opened.live_rows += _live_rows(part)
            opened.totals = joined((opened.totals, _total_ranges(part, self._plan)))
            opened.file.add(part)
        self._bound_pending()

    def add_changes(self, rows: pa.Table) -> None:
        """Append changes, by token."""
        if len(rows):
            if self._changes is None:
                assert self._task.changelog is not None, "the task says where changes go"
                folder = changelog_folder(self._task.table_id, self._task.changelog)
                self._changes = FileWriter(self._warehouse, folder, self._name)
            self._changes.add(rows)

    def close(self) -> tuple[tuple[WrittenFile, ...], tuple[ChangelogFile, ...]]:
        """Finish the files; they are durable after ``sync_files``."""
        files = (*self._finished, *(self._written(partition, opened) for partition, opened in self._runs.items()))
        if self._changes is None:
            return files, ()
        sums = self._changes.close().sums.checksums
        name = f"{self._task.changelog}/{self._name}"
        return files, (ChangelogFile(name, self._changes.rows, sums.size_bytes, sums.digest, sums.block_digests),)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the files of a task that failed, if possible."""
        if kind is None:
            return
        files = [opened.file for opened in self._runs.values()]
        for file in files if self._changes is None else [*files, self._changes]:
            with suppress(Exception):
                file.abandon()

    def _written(self, partition: str | None, opened: _Open) -> WrittenFile:
        sums = opened.file.close().sums.checksums
        ends = (opened.min_token, opened.max_token)
        file = DataFile(opened.file.name, opened.file.rows, sums.size_bytes, *ends, sums.digest, sums.block_digests)
        return WrittenFile(file, opened.live_rows, opened.totals, partition)

    def _by_partition(self, rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
        schema = self._plan.schema
        if not len(rows):
            return
        if not schema.partition_keys or self._task.partition is not None:
            yield self._task.partition, rows
            return
        names = list(schema.partition_keys)
        codes = np.zeros(len(rows), np.int64)
        for name in names:
            values = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
            codes = codes * len(values.dictionary) + values.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes, return_inverse=True)[1]
        by_code = np.argsort(codes, kind="stable")
        for places in np.split(by_code, np.flatnonzero(np.diff(codes[by_code])) + 1):
            part = rows.take(pa.array(places))
            yield partition_text(schema, part.select(names).slice(0, 1).to_pylist()[0]), part

    def _bound_pending(self) -> None:
        while sum(run.file.pending_bytes for run in self._runs.values()) > _MOST_PENDING:
            max((run.file for run in self._runs.values()), key=lambda file: file.pending_bytes).flush()
            written = [partition for partition, opened in self._runs.items() if opened.file.is_open]
            if len(written) > _MOST_OPEN:  # later rows of the partition begin another file
                self._finished.append(self._written(written[0], self._runs.pop(written[0])))

    def _next_name(self) -> str:
        """Return a name that no other file of a partition has."""
        return f"{self._name.removesuffix('.parquet')}-{len(self._finished)}.parquet" if self._finished else self._name


def _live_rows(rows: pa.Table) -> int:
    return int(pc.sum(rows[LIVE_COLUMN]).as_py() or 0) if LIVE_COLUMN in rows.column_names else len(rows)


def _total_ranges(rows: pa.Table, plan: MergePlan) -> TotalRanges:
    return {bounds.column.name: _range_of_total(rows, bounds) for bounds in plan.totals}


def _range_of_total(rows: pa.Table, bounds: TotalBounds) -> Sequence[str]:
    if rows[bounds.carry].null_count < len(rows):
        return UNBOUNDED
    return total_range(pc.min_max(rows[bounds.column.name]).as_py().values())


def sync_files(warehouse: Warehouse, paths: Sequence[tuple[str, ...]]) -> None:
    """Make the files of tasks durable. Several files share one sync of their file system, if it supports that."""
    if not warehouse.local or not paths:
        return
    if len(paths) > 1 and sync_file_system(warehouse.path()):
        return
    for path in paths:
        sync_folder(warehouse.path(*path))
    for folder in {path[:-1] for path in paths}:
        sync_folder(warehouse.path(*folder))
        sync_new_folders(warehouse, *folder)
