"""Compactions in this process of many rows: neighbouring runs combined by whole columns and written as Spark's
compactions write them (docs/decisions/0045).

What is in memory is a few windows of tokens, whatever the size of the runs: while one is read another is combined and a
third written, each in a thread of its own, for Arrow does all that without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from app.core.plan.jobs import FileSizes
from app.core.plan.merge_plan import MergePlan
from app.core.table.history import Run
from app.core.types.kinds import Family
from app.storage.combined_columns import MOST_FOLDED_VALUES, Allowance, ColumnSteps, combined
from app.storage.layout import Warehouse
from app.storage.run_files import MANY_ROWS, LeftToSpark, WrittenFile, row_groups, run_schema, write_run_file
from app.storage.scans.reading import LEAST_TOKEN, Rows, RunRows, TokenRange, batches_of, windows
from app.storage.tokens import Tokens

WINDOW_BYTES: Final = 32 * 2**20  # of all runs together, in memory; three windows are under way at a time
_TOKENS = 2**64
T = TypeVar("T")


def write_combined_run(
    warehouse: Warehouse,
    table_id: str,
    run_id: str,
    plan: MergePlan,
    runs: Sequence[Run],
    sizes: FileSizes,
    now: int,
    *,
    oldest: bool,
    go_on: Callable[[int], None],
) -> tuple[WrittenFile, ...]:
    """Combine neighbouring ``runs`` of one partition, oldest first, and write what a compaction at ``now`` (epoch
    seconds) keeps of them as the files of the run ``run_id``, as many as ``sizes`` ask for. They were written under the
    schema of the plan, one that does not settle; ``oldest`` as in ``CompactionJob``. ``go_on`` is told how many rows
    were read since, and may raise. The files are durable after ``sync_runs``.

    Raises ``LeftToSpark``, ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow or Python
    cannot hold, says nothing about the runs.
    """
    if any(column.type.family is Family.FLOATING for column in plan.schema.key_columns):
        raise LeftToSpark("-0.0 and 0.0 are one key")
    steps, allowance = ColumnSteps.of_compaction(plan, now, oldest=oldest), Allowance(MOST_FOLDED_VALUES)

    def combine(found: Sequence[Rows]) -> tuple[int, pa.Table]:
        tokens, rows = _together(plan, found)
        return len(tokens), combined(steps, tokens, rows, allowance)

    def pieces(tokens: TokenRange) -> Generator[pa.Table]:
        with (
            closing(ahead(_windows(warehouse, table_id, runs, tokens))) as read,
            closing(ahead(map(combine, read))) as done,
        ):
            for count, rows in done:
                go_on(count)
                yield from row_groups(rows)

    written: list[WrittenFile] = []
    for tokens in _ranges(sizes.ranges):
        with closing(pieces(tokens)) as found:
            file = write_run_file(warehouse, table_id, run_id, plan, found, MANY_ROWS, len(written))
        written += [file] if file is not None else []
    return tuple(written)


def _ranges(count: int) -> list[TokenRange]:
    """Equal ranges of tokens, in order."""
    width = _TOKENS // count
    return [TokenRange(LEAST_TOKEN + i * width, LEAST_TOKEN + (i + 1) * width - 1) for i in range(count)]


def _windows(warehouse: Warehouse, table_id: str, runs: Sequence[Run], tokens: TokenRange) -> Iterator[Sequence[Rows]]:
    rows, least = sum(run.rows for run in runs), WINDOW_BYTES // (4 * len(runs))
    shares = [max(least, WINDOW_BYTES * run.rows // rows) for run in runs]
    read = [
        RunRows(batches_of(warehouse, table_id, run, tokens, most_bytes=share))
        for run, share in zip(runs, shares, strict=True)
    ]
    for _, found in windows(read):
        present = [rows for rows in found if rows is not None]
        if present:
            yield present


def _together(plan: MergePlan, found: Sequence[Rows]) -> tuple[Tokens, pa.Table]:
    """The tokens and the rows of a window, of all runs after each other."""
    schema = run_schema(plan)
    of_runs = [
        pa.table([rows.batch.column(field.name).cast(field.type) for field in schema], schema=schema) for rows in found
    ]
    return np.concatenate([rows.tokens for rows in found]), pa.concat_tables(of_runs).combine_chunks()


def ahead(pieces: Iterator[T]) -> Generator[T]:
    """The same pieces, each made in a thread while whoever asked has the one before."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece
