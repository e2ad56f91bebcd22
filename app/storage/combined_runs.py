"""Compactions in this process: neighbouring runs combined by whole columns and written as Spark's compactions write
them (docs/decisions/0045).

What is in memory are some windows of tokens, and of each run the row group that is read: while one window is read
another is combined and a third written, each in a thread of its own, for Arrow does all that without the interpreter's
lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from app.core.plan.jobs import FileSizes
from app.core.plan.merge_plan import MergePlan
from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.core.types.kinds import Family
from app.storage.ahead import ahead, memory_given_back
from app.storage.combined_columns import MOST_FOLDED_VALUES, Allowance, ColumnSteps, combined
from app.storage.layout import Warehouse
from app.storage.run_files import (
    MANY_ROWS,
    LeftToSpark,
    TokenShared,
    WrittenFile,
    row_groups,
    run_schema,
    write_run_file,
)
from app.storage.scans.reading import LEAST_TOKEN, Rows, RunRows, TokenRange, batches_of, windows
from app.storage.tokens import Tokens

WINDOW_BYTES: Final = 16 * 2**20  # of all runs together, in memory
_MOST_WINDOW_BYTES: Final = 8 * WINDOW_BYTES  # of few rows that are large
_TOKENS = 2**64
_BYTES_A_VALUE = 8  # in memory, about


def write_combined_run(
    warehouse: Warehouse,
    table_id: str,
    run_id: str,
    steps: ColumnSteps,
    runs: Sequence[Run],
    sizes: FileSizes,
    go_on: Callable[[int], None],
) -> tuple[WrittenFile, ...]:
    """Combine neighbouring ``runs`` of one partition, oldest first, and write what is left by ``steps`` as the files of
    the run ``run_id``, as many as ``sizes`` ask for. They were written under the schema of the plan. ``go_on`` is told
    how many rows were read since, and may raise. The files are durable after ``sync_runs``.

    Raises ``LeftToSpark``, ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python
    cannot hold, says nothing about the runs.
    """
    if any(column.type.family is Family.FLOATING for column in steps.plan.schema.key_columns):
        raise LeftToSpark("-0.0 and 0.0 are one key")
    with memory_given_back(sizes.rows * len(steps.plan.state_columns) * _BYTES_A_VALUE):
        return _written(warehouse, table_id, run_id, steps, runs, sizes, go_on)


def _written(
    warehouse: Warehouse,
    table_id: str,
    run_id: str,
    steps: ColumnSteps,
    runs: Sequence[Run],
    sizes: FileSizes,
    go_on: Callable[[int], None],
) -> tuple[WrittenFile, ...]:
    plan, allowance = steps.plan, Allowance(MOST_FOLDED_VALUES)

    def combine(found: Sequence[Rows]) -> tuple[int, pa.Table]:
        tokens, rows = _together(plan, found)
        return len(tokens), combined(steps, tokens, rows, allowance)

    def told(done: Iterator[tuple[int, pa.Table]]) -> Iterator[pa.Table]:
        for count, rows in done:
            go_on(count)
            yield rows

    written: list[WrittenFile] = []
    with (
        closing(ahead(_windows(warehouse, table_id, runs))) as read,
        closing(ahead(map(combine, read))) as done,
    ):
        for _, pieces in groupby(_by_range(told(done), sizes.ranges), key=itemgetter(0)):
            groups = row_groups(rows for _, rows in pieces)
            file = write_run_file(warehouse, table_id, run_id, plan, groups, MANY_ROWS, len(written))
            written += [file] if file is not None else []
    return tuple(written)


def _by_range(pieces: Iterator[pa.Table], count: int) -> Iterator[tuple[int, pa.Table]]:
    """Rows by token, cut where one of ``count`` equal ranges of tokens ends, and the number of the range."""
    bounds = np.array([LEAST_TOKEN + place * (_TOKENS // count) for place in range(1, count)], np.int64)
    for rows in pieces:
        ends = np.searchsorted(rows[TOKEN_COLUMN].to_numpy(), bounds)
        for number, (start, end) in enumerate(pairwise([0, *ends.tolist(), len(rows)])):
            if start < end:
                yield number, rows.slice(start, end - start)


def _windows(warehouse: Warehouse, table_id: str, runs: Sequence[Run]) -> Iterator[Sequence[Rows]]:
    rows, least = sum(run.rows for run in runs), WINDOW_BYTES // (4 * len(runs))
    shares = [max(least, WINDOW_BYTES * run.rows // rows) for run in runs]
    read = [
        RunRows(batches_of(warehouse, table_id, run, TokenRange(), most_bytes=share), share // 2)
        for run, share in zip(runs, shares, strict=True)
    ]
    for _, found in windows(read):
        present = [rows for rows in found if rows is not None]
        if sum(rows.batch.nbytes for rows in present) > _MOST_WINDOW_BYTES:
            raise LeftToSpark("rows are large")
        if present:
            yield present


def _together(plan: MergePlan, found: Sequence[Rows]) -> tuple[Tokens, pa.Table]:
    """The tokens and the rows of a window, of all runs after each other."""
    schema = run_schema(plan)
    of_runs = []
    for rows in found:
        if (rows.tokens[1:] == rows.tokens[:-1]).any():
            raise TokenShared(f"in a run, near {rows.tokens[0]}")
        if not set(schema.names) <= set(rows.batch.schema.names):
            raise LeftToSpark("a run lacks columns that the plan has since")
        columns = [rows.batch.column(field.name).cast(field.type) for field in schema]
        of_runs.append(pa.table(columns, schema=schema))
    return np.concatenate([rows.tokens for rows in found]), pa.concat_tables(of_runs).combine_chunks()
