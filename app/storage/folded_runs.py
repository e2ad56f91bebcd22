"""Runs of few records, folded in this process and written as Spark's merges write them (docs/decisions/0037).

The fold is that of lookups, ``app.core.plan.fold``: what it says and what Spark says are one (design §3).
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.fold import fold
from app.core.plan.merge_plan import MergePlan
from app.core.rules.row import LIVE_COLUMN
from app.core.table.history import Batch, DataFile, Run
from app.core.table.keys import Key, normalised, partition_text, same_key
from app.core.table.records import TOKEN_COLUMN, Record
from app.core.table.schema import TableSchema
from app.storage.arrow import arrow_field, arrow_type
from app.storage.checksums import BLOCK_BYTES, SummedSink
from app.storage.layout import Warehouse, run_folder, sync_file_system, sync_folder, sync_new_folders
from app.storage.staging import read_batch, staged_record
from app.storage.tokens import tokens_of

StateRow = Mapping[str, Any]
Partition = tuple[Any, ...]
_FILE = "part-00000.parquet"


class TokenShared(Exception):
    """Two keys of one merge have one token. Which of them comes first in a file is for Spark to say."""


def write_folded_runs(
    warehouse: Warehouse, table_id: str, folder: str, plan: MergePlan, batches: Sequence[Batch], now: int
) -> tuple[Run, ...]:
    """Fold the records of ``batches``, which were written under the plan's schema, at ``now`` (epoch seconds), and
    write a run of one file below ``folder``, or one in each partition. They are durable after ``sync_runs``.

    Raises ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python cannot hold, says
    nothing about the batches.
    """
    by_token = _records_by_token(warehouse, plan.schema, batches)
    states = [(token, _state(plan, by_token[token], now)) for token in sorted(by_token)]
    runs = []
    for place, rows in enumerate(_partitions(plan.schema, states)):
        inner = f"{folder}.{place:x}" if plan.schema.partition_keys else folder
        file = _write(warehouse, run_folder(table_id, inner), plan, rows)
        partition = partition_text(plan.schema, rows[0][1]) if plan.schema.partition_keys else None
        live = sum(bool(state.get(LIVE_COLUMN, True)) for _, state in rows)
        runs.append(Run(inner, batches[0].schema_id, (file,), partition, live_rows=live))
    return tuple(runs)


def sync_runs(warehouse: Warehouse, runs: Sequence[tuple[str, Run]]) -> None:
    """Make runs of tables (by id) durable that ``write_folded_runs`` wrote. Several are one sync of their file system
    where it has that.
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


def run_schema(plan: MergePlan) -> pa.Schema:
    """What a run's files hold: the token, the columns with their field ids, the hidden columns."""
    visible = [arrow_field(column) for column in (*plan.schema.key_columns, *plan.schema.value_columns)]
    hidden = [pa.field(column.name, arrow_type(column.type)) for column in plan.hidden]
    return pa.schema([pa.field(TOKEN_COLUMN, pa.int64()), *visible, *hidden])


def _records_by_token(
    warehouse: Warehouse, schema: TableSchema, batches: Sequence[Batch]
) -> Mapping[int, list[Record]]:
    """The records of each key in arrival order."""
    found: dict[int, list[Record]] = {}
    for batch in sorted(batches, key=lambda batch: batch.number):
        rows = read_batch(warehouse, batch, schema)
        for token, row in zip(tokens_of(schema, rows).tolist(), rows.to_pylist(), strict=True):
            record = staged_record(schema, batch.number, row)
            of_key = found.setdefault(token, [])
            if of_key and not same_key(_key(schema, of_key[0]), _key(schema, record)):
                raise TokenShared(f"token {token}")
            of_key.append(record)
    return found


def _key(schema: TableSchema, record: Record) -> Key:
    return tuple(record.values[name] for name in schema.primary_key)


def _state(plan: MergePlan, records: Sequence[Record], now: int) -> StateRow:
    folded = fold(plan, sorted(records, key=lambda record: record.arrival), now) or {}  # of no records there is none
    return {**folded, **{column.name: normalised(column, folded[column.name]) for column in plan.schema.key_columns}}


def _partitions(
    schema: TableSchema, states: Sequence[tuple[int, StateRow]]
) -> Iterator[Sequence[tuple[int, StateRow]]]:
    """The rows of each partition; all together where the table has none."""
    found: dict[Partition, list[tuple[int, StateRow]]] = defaultdict(list)
    for token, state in states:
        found[tuple(state[name] for name in schema.partition_keys)].append((token, state))
    yield from found.values()


def _write(
    warehouse: Warehouse, folder: Sequence[str], plan: MergePlan, rows: Sequence[tuple[int, StateRow]]
) -> DataFile:
    """The file that was written. It is summed up before it reaches the disk: what the disk makes of it is found out by
    whoever reads it.
    """
    schema = run_schema(plan)
    columns = [pa.array([token for token, _ in rows], pa.int64())]
    columns += [pa.array([state[field.name] for _, state in rows], field.type) for field in list(schema)[1:]]
    if not warehouse.is_store:
        warehouse.filesystem.create_dir(warehouse.path(*folder))
    with warehouse.filesystem.open_output_stream(warehouse.path(*folder, _FILE)) as stream:
        summed = SummedSink(stream)
        with (
            io.BufferedWriter(summed, BLOCK_BYTES) as sink,  # Parquet comes in many small pieces
            # A few rows: dictionaries, and a context of zstd for each column, would take longer than all the rest.
            pq.ParquetWriter(sink, schema, compression="snappy", use_dictionary=False, write_page_checksum=True) as to,
        ):
            to.write_table(pa.table(columns, schema=schema))
    found = summed.sums.checksums
    ends = rows[0][0], rows[-1][0]
    return DataFile(_FILE, len(rows), found.size_bytes, *ends, found.digest, found.block_digests)
