"""The records of a task in pieces by token, each with all records of its keys, in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.widening import same_type, widened
from app.core.table.history import Batch
from app.core.table.named_columns import ALL_NAMED, named_words, words_naming
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, POSITION_BITS, POSITION_COLUMN, TOKEN_COLUMN
from app.core.table.schema import Column, TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.files.arrow import arrow_type, staged_file_schema, staging_schema
from app.files.layout import Warehouse
from app.files.named_files import check_file, decoding, file_of_batch, opened_parquet, read_whole
from app.files.reading import BATCH_ROWS, TokenRange, fitting_rows, staged_groups
from app.files.tokens import Tokens, order_of, tokens_of
from app.kernel.blame import check_older_records
from app.kernel.columns import Places
from app.kernel.tasks import Task

# Records of about this size in memory are read together.
READ_BYTES: Final = 8 * 2**20
_SMALL_FILE: Final = 4 * 2**20  # bytes; a larger one is read twice, so that it is never whole in memory
# Records of about this size in memory are folded together.
PIECE_BYTES: Final = 16 * 2**20
# Records of at most this size are in memory together; more are set aside in files.
MOST_BYTES: Final = 48 * 2**20
# One such file gets records of about this size.
_ASIDE_BYTES: Final = 24 * 2**20
_MOST_FILES: Final = 256
# Records for all such files are written once they have this size together.
_PENDING_BYTES: Final = 32 * 2**20
_IPC: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, eq=False)
class Records:
    """Records with the token of each; those of one token are in arrival order."""

    tokens: Tokens
    rows: pa.Table


def record_pieces(warehouse: Warehouse, task: Task) -> Iterator[Records]:
    """Return the task's records in pieces by token, each with all records of its keys.

    Raise ``DamagedFile`` and ``UnfoldableValue``.
    """
    batches = sorted(task.batches, key=lambda batch: batch.number)
    expected, read, size = sum(batch.records for batch in batches), 0, 0
    parts: list[Records] = []
    with ExitStack() as stack:
        aside: _Aside | None = None
        for batch in batches:
            for part in records_of(warehouse, task, batch):
                parts.append(part)
                read, size = read + len(part.tokens), size + part.rows.nbytes
                if aside is None and size > MOST_BYTES:
                    aside = stack.enter_context(_Aside(task, _files(size * expected / max(1, read))))
                if aside is not None:
                    aside.add(parts)
                    parts = []
        for together in [parts] if aside is None else aside.parts():
            yield from pieces_of(together)


def _files(expected_bytes: float) -> int:
    return max(2, min(_MOST_FILES, 1 + int(expected_bytes / _ASIDE_BYTES)))


def pieces_of(parts: Sequence[Records]) -> Iterator[Records]:
    """Return records by token, in pieces that each have all records of their keys."""
    if not parts:
        return
    rows = pa.concat_tables([part.rows for part in parts])
    tokens = np.concatenate([part.tokens for part in parts])
    if (tokens[1:] >= tokens[:-1]).all():  # those of one file, as a rule
        for places in _cuts(tokens, len(rows), rows.nbytes):
            yield Records(tokens[places], rows.slice(places.start, places.stop - places.start).combine_chunks())
        return
    order = order_of(tokens)
    for places in _cuts(tokens[order], len(rows), rows.nbytes):
        chosen = order[places]
        yield Records(tokens[chosen], rows.take(pa.array(chosen)).combine_chunks())


def _cuts(ordered: Tokens, count: int, size: int) -> Iterator[slice]:
    """Return the parts of sorted tokens, each of about ``PIECE_BYTES``; no part ends inside a token."""
    at_once = max(1, int(count * PIECE_BYTES / max(1, size)))
    start = 0
    while start < count:
        end = min(count, start + at_once)
        if end < count:
            end = int(np.searchsorted(ordered, ordered[end - 1], side="right"))
        yield slice(start, end)
        start = end


@dataclass(eq=False)
class _File:
    """Records of neighbouring tokens in a file of this machine. ``pending`` are not yet written."""

    path: Path
    pending: list[pa.Table]
    writer: pa.ipc.RecordBatchFileWriter | None = None


class _Aside:
    """Records in local files by token, so that the memory of a task does not grow with its batches."""

    def __init__(self, task: Task, files: int) -> None:
        """``files`` is the number of equal token ranges into which the task is cut, at least two."""
        self._first = task.first_token
        self._width = (task.last_token - task.first_token) // files + 1
        self._folder = tempfile.TemporaryDirectory(prefix="keyfold-task-")
        self._files = [_File(Path(self._folder.name, str(place)), []) for place in range(files)]
        self._pending = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            if file.writer is not None:
                file.writer.close()
        self._folder.cleanup()

    def add(self, parts: Sequence[Records]) -> None:
        """Append records, those of a token in arrival order."""
        for part in parts:
            numbers = self._numbers(part.tokens)
            order = np.argsort(numbers, kind="stable")
            rows = part.rows.append_column(TOKEN_COLUMN, pa.array(part.tokens))
            for chosen in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else ():
                self._files[int(numbers[chosen[0]])].pending.append(rows.take(pa.array(chosen)))
            self._pending += rows.nbytes
            if self._pending > _PENDING_BYTES:
                self._flush()

    def _numbers(self, tokens: Tokens) -> Places:
        """Return the number of the file of each token."""
        above = tokens.view(np.uint64) - np.uint64(self._first % 2**64)  # modulo 2^64, never below 0
        return np.asarray(above // np.uint64(self._width), dtype=np.int64)

    def _flush(self) -> None:
        for file in self._files:
            if file.pending:
                rows = pa.concat_tables(file.pending).combine_chunks()
                if file.writer is None:
                    file.writer = pa.ipc.new_file(str(file.path), rows.schema, options=_IPC)
                file.writer.write_table(rows)
                file.pending = []
        self._pending = 0

    def parts(self) -> Iterator[Sequence[Records]]:
        """Return the records of each file, by token, those of a token in arrival order."""
        self._flush()
        for file in self._files:
            if file.writer is not None:
                file.writer.close()
                file.writer = None
                yield [_read(file.path)]
                file.path.unlink()


def _read(path: Path) -> Records:
    with pa.ipc.open_file(str(path)) as file:
        rows = file.read_all()
    return Records(rows.column(TOKEN_COLUMN).to_numpy(), rows.drop_columns([TOKEN_COLUMN]))


def records_of(warehouse: Warehouse, task: Task, batch: Batch) -> Iterator[Records]:
    """Return the records of a batch whose tokens are the task's. Raise ``DamagedFile`` and ``UnfoldableValue``."""
    written = task.schema_at(batch.schema_id)
    tokens = TokenRange(task.first_token, task.last_token)
    with _opened(warehouse, file_of_batch(batch)) as parquet:
        known = TOKEN_COLUMN in parquet.schema_arrow.names  # not in files of an older release
        file_schema = staged_file_schema(written) if known else staging_schema(written)
        for group in staged_groups(parquet, tokens):
            metadata = parquet.metadata.row_group(group)
            at_once = min(BATCH_ROWS, fitting_rows(metadata, None, READ_BYTES, lambda _: 0))
            for piece in parquet.iter_batches(at_once, row_groups=[group], use_threads=False):
                rows = pa.Table.from_batches([piece]).select(file_schema.names).cast(file_schema)
                records = Records(rows.column(TOKEN_COLUMN).to_numpy() if known else tokens_of(written, rows), rows)
                yield _within(tokens, records_under(task.schema, written, batch.number, records))


@contextmanager
def _opened(warehouse: Warehouse, file: NamedFile) -> Iterator[pq.ParquetFile]:
    """Return the file, completely checked if it has a digest. Raise ``DamagedFile``."""
    if file.size_bytes <= _SMALL_FILE:
        content = read_whole(warehouse, file)
        with decoding(warehouse, file):
            yield pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        return
    if file.digest is not None:  # else its pages are compared, as they are read
        check_file(warehouse, file)
    with opened_parquet(warehouse, file) as parquet:
        yield parquet


def _within(tokens: TokenRange, records: Records) -> Records:
    inside = (records.tokens >= tokens.first) & (records.tokens <= tokens.last)
    if inside.all():
        return records
    return Records(records.tokens[inside], records.rows.filter(pa.array(inside)))


def records_under(schema: TableSchema, written: TableSchema, number: int, records: Records) -> Records:
    """Return records of the batch ``number``, from its file, under ``schema``, with ``ARRIVAL_COLUMN``.

    Raise ``UnfoldableValue``.
    """
    rows = records.rows
    arrivals = rows.column(POSITION_COLUMN).to_numpy().astype(np.int64) | np.int64(number << POSITION_BITS)
    under = _under(written, schema, rows).append_column(ARRIVAL_COLUMN, pa.array(arrivals))
    if written != schema:  # the others were checked when they were posted
        check_older_records(compile_plan(schema), under)
    return Records(records.tokens, under)


def _under(written: TableSchema, schema: TableSchema, rows: pa.Table) -> pa.Table:
    """Return records of one schema under another: columns are found by id, new ones are null."""
    before = {column.id: column for column in written.columns}
    columns = {column.name: _converted(rows, before.get(column.id), column) for column in schema.columns}
    columns[KIND_COLUMN] = rows.column(KIND_COLUMN)
    columns |= {word: _word(rows, written, schema, word) for word in named_words(schema)}
    return pa.table(columns)


def _converted(rows: pa.Table, before: Column | None, column: Column) -> pa.ChunkedArray | pa.Array:
    to_type = arrow_type(column.type)
    if before is None:
        return pa.nulls(len(rows), to_type)
    values = rows.column(before.name)
    if same_type(before.type, column.type):
        return values.cast(to_type)
    return pa.array([widened(value, before.type, column.type) for value in values.to_pylist()], to_type)


def _word(rows: pa.Table, written: TableSchema, schema: TableSchema, word: str) -> pa.ChunkedArray | pa.Array:
    """Return a bitmask of the records' named columns. Records without one count as naming all
    columns of their schema.
    """
    if word in rows.column_names:
        return rows.column(word)
    known = {column.id for column in written.columns}
    old = frozenset() if written.absent_unchanged else {column.name for column in schema.columns if column.id in known}
    bits = words_naming(schema.columns, old).get(word, 0)
    return pa.repeat(pa.scalar(ALL_NAMED if bits == ALL_NAMED else bits, pa.int64()), len(rows))
