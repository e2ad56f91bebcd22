"""Scans and comparisons read windows that hold every row once, and no more bytes at a time than they may."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.plan.merging.fold import lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.row_filters import parse_filters
from app.core.table.history import Run
from app.core.table.options.entries import Integers
from app.core.table.records import TOKEN_COLUMN, Record, RowKind
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.files.arrow import arrow_type
from app.files.layout import Warehouse, run_folder
from app.files.reading import RunRows, TokenRange, batches_of, fitting_rows, windows
from app.storage.scans.comparing import Difference, Sides, differences
from app.storage.scans.conditions import matching
from app.storage.scans.merging import Source
from app.storage.scans.staged import StagedKeys
from app.storage.scans.writers import PIECE_BYTES, WRITERS, text_bytes
from app.storage.staging.staged_index import StagedBatch
from tests.services.builders import schema
from tests.storage.images.imaged import PLAN
from tests.written import read_run, write_run

LONG = "x" * 2**18


def written(warehouse: Warehouse, texts: Sequence[str]) -> Run:
    states = [lift(PLAN, Record(RowKind.INSERT, {"id": place, "n": text})) for place, text in enumerate(texts)]
    write_run(Path(warehouse.path(*run_folder("t1", "r1"))), PLAN, states)
    return read_run(warehouse, "t1", "r1", 0)


@pytest.mark.slow(reason="writes rows as large as they may be")
@pytest.mark.parametrize("many", [1, 400])
def test_rows_are_read_by_their_bytes_however_small_they_are_in_the_file(warehouse: Warehouse, many: int) -> None:
    """``many`` equal values are one entry of a dictionary: 100 MiB of rows in a file of some KiB."""
    texts = [LONG] * many + [f"short {place}" for place in range(10_000)]
    run = written(warehouse, texts)
    most = 2**20
    sizes = [(batch.nbytes, len(batch)) for batch in batches_of(warehouse, "t1", run, TokenRange(), most_bytes=most)]
    assert sum(rows for _, rows in sizes) == len(texts)
    assert max(size for size, _ in sizes) <= 6 * most


def test_short_values_are_read_many_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "short.parquet"
    pq.write_table(pa.table({"a": ["yes", "no"] * 50_000}), path)
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert fitting_rows(group, None, 2**20, lambda columns: 3 * len(columns)) > 50_000


def test_a_long_value_of_a_dictionary_is_reported_by_what_the_dictionary_holds(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    repeated = pa.DictionaryArray.from_arrays(np.zeros(50_000, dtype=np.int32), [LONG])  # 12 GiB, were it spelt out
    pq.write_table(pa.table({"a": repeated}), path)
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert fitting_rows(group, ["a"], 2**20, lambda _: len(LONG)) == 4 * 2**20 // len(LONG)


@pytest.mark.parametrize("media_type", WRITERS)
def test_a_body_is_made_in_pieces_whatever_the_names_take(media_type: str) -> None:
    names = [f"{number}" + "n" * 200 for number in range(100)]
    batch = pa.record_batch([pa.nulls(2_000, pa.string()) for _ in names], names=names)
    columns = [Column(number, name, DataType(Kind.STRING)) for number, name in enumerate(names)]
    pieces = [*WRITERS[media_type].write(columns, [batch], Integers.NUMBER)]
    assert max(map(len, pieces)) <= 2 * PIECE_BYTES
    assert len(pieces) > 2


def test_names_inside_count_for_every_value_that_has_them() -> None:
    inner = pa.struct([("n" * 200, pa.int32()), ("m" * 200, pa.int32())])
    nested = pa.record_batch([pa.array([[None, {}] * 1_000, []], pa.list_(inner))], names=["c"])
    assert 700_000 < text_bytes(nested) < 1_000_000
    entries = pa.record_batch([pa.array([[("k" * 100, 1)] * 10], pa.map_(pa.string(), pa.int32()))], names=["c"])
    assert text_bytes(entries) > 1_000


def test_staged_records_are_folded_as_many_at_a_time_as_take_the_bytes() -> None:
    rows = pa.table({"id": [*range(100)], "n": ["x" * 100] * 100})
    tokens = np.repeat(np.arange(50), 2)
    batch = StagedBatch(1, PLAN.schema, rows, tokens)
    keys = StagedKeys(tokens, np.ones(100, dtype=np.int64), np.arange(100), {1: batch})
    cuts = [*keys.pieces(batch.size_bytes // 4)]
    assert len(cuts) == 3
    left, sizes = keys, []
    for cut in [*cuts, None]:
        piece, left = left.split(cut)
        sizes.append(len(piece.tokens))
    assert sum(sizes) == 100
    assert max(sizes) <= 30
    assert [*StagedKeys.none().pieces(10)] == []


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
            reported = rows.tokens.tolist()
            assert rows.batch.column(TOKEN_COLUMN).to_pylist() == reported
            assert [run for run, _ in rows.batch.column("place").to_pylist()] == [number] * len(reported)
            assert reported[0] >= before
            assert bound is None or reported[-1] < bound
            found[number] += reported
        before = before if bound is None else bound
    assert found == runs


TEXTS = compile_plan(schema(("id", "BIGINT"), ("n", "STRING")))


def source(warehouse: Warehouse, plan: MergePlan = TEXTS) -> Source:
    columns = tuple(plan.schema.columns)
    return Source(warehouse, "t1", plan, {0: plan.schema}, frozenset({0}), columns, ())


def run(warehouse: Warehouse, name: str, rows: Mapping[int, str | None], *, tokens: int = 2**40) -> Run:
    """A run of the rows (key, value), None for a deleted key; the token of a key is the rest of its division by
    ``tokens``.
    """
    records = [
        Record(RowKind.INSERT if text is not None else RowKind.DELETE, {"id": key, "n": text}, place)
        for place, (key, text) in enumerate(rows.items())
    ]
    states = [lift(TEXTS, record) for record in records]
    folder = Path(warehouse.path(*run_folder("t1", name)))
    write_run(folder, TEXTS, states, rows_per_group=2_000, token=lambda key: key[0] % tokens)
    return read_run(warehouse, "t1", name, 0)


def found(warehouse: Warehouse, before: list[Run], after: list[Run]) -> list[Difference]:
    sides = Sides("t1", before, after)
    touched = sides.touched(warehouse, TokenRange())
    return [*differences(source(warehouse), sides, TokenRange(), touched)]


def pairs(batches: list[pa.RecordBatch]) -> dict[int, str]:
    return {row["id"]: row["n"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.parametrize("tokens", [1, 2, 3, 2**40])
def test_keys_that_share_a_token_are_distinguished(warehouse: Warehouse, tokens: int) -> None:
    first = run(warehouse, "r1", {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}, tokens=tokens)
    second = run(warehouse, "r2", {2: "B", 3: "c", 4: None, 6: "f", 7: None}, tokens=tokens)
    parts = found(warehouse, [first], [first, second])
    assert sum(part.keys for part in parts) == 5
    assert pairs([part.added for part in parts]) == {6: "f"}
    assert pairs([part.removed for part in parts]) == {4: "d"}
    assert pairs([part.before for part in parts]) == {2: "b"}
    assert pairs([part.after for part in parts]) == {2: "B"}


def test_rows_of_keys_that_nothing_touched_are_left_out(warehouse: Warehouse) -> None:
    first = run(warehouse, "r1", dict.fromkeys(range(10000), "a"))
    second = run(warehouse, "r2", {4_001: "b", 4_500: "b"})
    sides = Sides("t1", [first], [first, second])
    touched = sides.touched(warehouse, TokenRange())
    assert touched.tolist() == [4_001, 4_500]
    assert sides.rows_to_read(warehouse, TokenRange(), touched) == 2_000 + 2  # one row group of five
    assert sum(len(part.after) for part in found(warehouse, [first], [first, second])) == 2
    assert found(warehouse, [first, second], [first, second]) == []


@pytest.mark.slow(reason="writes 100 MB")
def test_the_memory_does_not_grow_with_the_rows(warehouse: Warehouse) -> None:
    first = run(warehouse, "r1", dict.fromkeys(range(60000), "a" * 1000))
    second = run(warehouse, "r2", dict.fromkeys(range(30000, 90000), "b" * 1000))
    sides = Sides("t1", [first], [first, second])
    touched = sides.touched(warehouse, TokenRange())
    held, most, seen = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for part in differences(source(warehouse), sides, TokenRange(), touched):
        seen += part.keys
        most = max(most, pa.total_allocated_bytes() - held)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 60_000
    assert most < 100 * 2**20
    assert python < 100 * 2**20


@pytest.mark.parametrize("of", ["FLOAT", "DOUBLE"])
def test_in_finds_the_numbers_that_eq_finds(of: str) -> None:
    table = schema(("id", "BIGINT"), ("x", of))
    held = pa.array([0.0, -0.0, float("nan"), 1.5, None], arrow_type(table.by_name["x"].type))
    batch = pa.record_batch({"x": held})
    for text in ("0", "-0.0", "NaN", "1.5", "2"):
        one, listed = (
            matching(batch, parse_filters(table, [f"x.{condition}"])).fill_null(fill_value=False)
            for condition in (f"eq.{text}", f"in.({text},2)")
        )
        assert listed == one, text
