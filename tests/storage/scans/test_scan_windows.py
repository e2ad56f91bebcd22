"""Windows of tokens over several runs: every row once, in order, all rows of a token together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.records import TOKEN_COLUMN
from app.files.reading import RunRows, windows

RUNS = st.lists(st.lists(st.integers(-5, 20), max_size=15).map(sorted), max_size=4)


def batches(run: int, tokens: Sequence[int], size: int) -> Iterator[pa.RecordBatch]:
    rows = [{TOKEN_COLUMN: token, "place": (run, place)} for place, token in enumerate(tokens)]
    schema = pa.schema([(TOKEN_COLUMN, pa.int64()), ("place", pa.list_(pa.int64()))])
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema)


@given(runs=RUNS, size=st.integers(1, 4))
def test_windows_hold_every_row_once_and_no_token_twice(runs: list[list[int]], size: int) -> None:
    found: list[list[int]] = [[] for _ in runs]
    before = -(2**63)
    for bound, taken in windows([RunRows(batches(number, run, size)) for number, run in enumerate(runs)]):
        for number, rows in enumerate(taken):
            if rows is None:
                continue
            told = rows.tokens.tolist()
            assert rows.batch.column(TOKEN_COLUMN).to_pylist() == told
            assert [run for run, _ in rows.batch.column("place").to_pylist()] == [number] * len(told)
            assert told[0] >= before
            assert bound is None or told[-1] < bound
            found[number] += told
        before = before if bound is None else bound
    assert found == runs
