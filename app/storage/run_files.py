"""The files of a run that are written in this process, as Spark's jobs lay out theirs (design §5)."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.core.plan.merge_plan import MergePlan
from app.core.rules.row import LIVE_COLUMN
from app.core.table.history import DataFile, Run
from app.core.table.records import TOKEN_COLUMN
from app.storage.arrow import arrow_field, arrow_type
from app.storage.checksums import BLOCK_BYTES, SummedSink
from app.storage.dictionaries import columns_with_dictionaries
from app.storage.layout import Warehouse, run_folder, sync_file_system, sync_folder, sync_new_folders

# A few rows: dictionaries, and a context of zstd for each column, would take longer than all the rest.
FEW_ROWS: Final[Mapping[str, Any]] = {"compression": "snappy", "use_dictionary": False}
MANY_ROWS: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "write_page_index": True,
    "store_schema": False,
    "store_decimal_as_integer": True,
}


ROW_GROUP_BYTES: Final = 24 * 2**20  # in memory; encoded they are some 16, as Spark's runs have them


class LeftToSpark(Exception):
    """Work that is Spark's, for a reason that says nothing against what was read."""


class TokenShared(Exception):
    """Two keys of one run have one token. Which of them comes first in a file is for Spark to say."""


@dataclass(frozen=True)
class WrittenFile:
    """A file of state rows, of which ``live_rows`` are no deleted keys."""

    file: DataFile
    live_rows: int


def run_schema(plan: MergePlan) -> pa.Schema:
    """What a run's files hold: the token, the columns with their field ids, the hidden columns."""
    visible = [arrow_field(column) for column in (*plan.schema.key_columns, *plan.schema.value_columns)]
    hidden = [pa.field(column.name, arrow_type(column.type)) for column in plan.hidden]
    return pa.schema([pa.field(TOKEN_COLUMN, pa.int64()), *visible, *hidden])


def state_table(plan: MergePlan, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> pa.Table:
    """State rows with their tokens, as ``run_schema`` has them. Raises what Arrow raises of values that it cannot
    hold.
    """
    schema = run_schema(plan)
    columns = [pa.array([token for token, _ in rows], pa.int64())]
    columns += [pa.array([state[field.name] for _, state in rows], field.type) for field in list(schema)[1:]]
    return pa.table(columns, schema=schema)


def row_groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of ``pieces``, in tables as large as a row group shall be."""
    waiting: list[pa.Table] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.nbytes
        if size >= ROW_GROUP_BYTES:
            *whole, rest = _cut(pa.concat_tables(waiting))
            yield from whole
            waiting, size = [rest], rest.nbytes
    if waiting:
        yield from _cut(pa.concat_tables(waiting))


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    at_once = max(1, len(rows) * ROW_GROUP_BYTES // max(1, rows.nbytes))
    return (rows.slice(start, at_once) for start in range(0, max(1, len(rows)), at_once))


def write_run_file(
    warehouse: Warehouse,
    table_id: str,
    run_id: str,
    plan: MergePlan,
    pieces: Iterable[pa.Table],
    how: Mapping[str, Any],
    place: int = 0,
) -> WrittenFile | None:
    """Write the file at ``place`` among those of the run, of tables as ``state_table`` makes them, by token; a piece
    becomes a row group. None, and no file, where there is no row. It is durable after ``sync_runs``.

    It is summed up before it reaches the disk: what the disk makes of it is found out by whoever reads it.
    """
    filled = filter(len, pieces)
    first = next(filled, None)
    if first is None:
        return None
    folder, name = run_folder(table_id, run_id), f"part-{place:05}.parquet"
    if not warehouse.is_store:
        warehouse.filesystem.create_dir(warehouse.path(*folder))
    rows = live = 0
    if how.get("use_dictionary", True):
        how = {**how, "use_dictionary": columns_with_dictionaries(first)}
    with warehouse.filesystem.open_output_stream(warehouse.path(*folder, name)) as stream:
        summed, last = SummedSink(stream), first
        with (
            io.BufferedWriter(summed, BLOCK_BYTES) as sink,  # Parquet comes in many small pieces
            pq.ParquetWriter(sink, run_schema(plan), write_page_checksum=True, **how) as to,
        ):
            for last in chain([first], filled):
                to.write_table(last)
                rows, live = rows + len(last), live + _live_rows(last)
    found = summed.sums.checksums
    ends = first[TOKEN_COLUMN][0].as_py(), last[TOKEN_COLUMN][-1].as_py()
    return WrittenFile(DataFile(name, rows, found.size_bytes, *ends, found.digest, found.block_digests), live)


def _live_rows(rows: pa.Table) -> int:
    return int(pc.sum(rows[LIVE_COLUMN]).as_py() or 0) if LIVE_COLUMN in rows.column_names else len(rows)


def sync_runs(warehouse: Warehouse, runs: Sequence[tuple[str, Run]]) -> None:
    """Make runs of tables (by id) durable whose files ``write_run_file`` wrote. Several are one sync of their file
    system where it has that.
    """
    if not warehouse.local or not runs:
        return
    if len(runs) > 1 and sync_file_system(warehouse.path()):
        return
    for table_id, run in runs:
        folder = run_folder(table_id, run.id)
        for file in run.files:
            sync_folder(warehouse.path(*folder, file.name))
        sync_folder(warehouse.path(*folder))
        sync_new_folders(warehouse, *folder)
