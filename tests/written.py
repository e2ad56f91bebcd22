"""Runs that tests write by hand, and runs read from their folders as the catalog would name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.merging.merge_plan import MergePlan
from app.core.rules.row import LIVE_COLUMN
from app.core.table.history import DataFile, Run
from app.core.table.keys import token_of
from app.core.table.records import TOKEN_COLUMN
from app.files.checksums import checksums_of
from app.files.layout import Warehouse, data_file, run_folder
from app.files.run_files import run_schema

StateRow = Mapping[str, Any]


def write_run(
    folder: Path,
    plan: MergePlan,
    states: Iterable[StateRow],
    *,
    files: int = 1,
    rows_per_group: int = 100,
    token: Callable[[tuple[Any, ...]], int] | None = None,
) -> None:
    """Writes a run's files, sorted by token, of disjoint token ranges; ``token`` replaces the real token of a key."""
    of_key = token or (lambda key: token_of(plan.schema, key))
    rows = [{**state, TOKEN_COLUMN: of_key(tuple(state[name] for name in plan.schema.primary_key))} for state in states]
    rows.sort(key=lambda row: row[TOKEN_COLUMN])
    folder.mkdir(parents=True, exist_ok=True)
    size = max(1, -(-len(rows) // files))
    for number in range(files):
        part = pa.Table.from_pylist(rows[number * size : (number + 1) * size], schema=run_schema(plan))
        pq.write_table(part, folder / f"part-{number:05}.parquet", compression="zstd", row_group_size=rows_per_group)


def read_run(warehouse: Warehouse, table_id: str, run_id: str, schema_id: int) -> Run:
    """The run whose files lie in its folder, in token order; empty files are left out."""
    folder = Path(warehouse.path(*run_folder(table_id, run_id)))
    found = []
    live = 0
    for path in sorted(folder.glob("*.parquet")):
        rows = pq.ParquetFile(path).read()
        if len(rows):
            tokens = rows.column(TOKEN_COLUMN).to_pylist()
            sums = checksums_of(warehouse, warehouse.path(*data_file(table_id, run_id, path.name)))
            ends = min(tokens), max(tokens)
            found.append(DataFile(path.name, len(rows), sums.size_bytes, *ends, sums.digest, sums.block_digests))
            known = LIVE_COLUMN in rows.column_names
            live += sum(map(bool, rows.column(LIVE_COLUMN).to_pylist())) if known else len(rows)
    return Run(run_id, schema_id, tuple(sorted(found, key=lambda file: file.min_token)), live_rows=live)
