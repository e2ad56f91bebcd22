"""What a scan holds in memory at a time depends neither on how long values are nor on how names are spelt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.fold import lift
from app.core.table.history import Run
from app.core.table.options.entries import Integers
from app.core.table.records import Record, RowKind
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.files.layout import Warehouse, run_folder
from app.files.reading import TokenRange, batches_of, fitting_rows
from app.storage.scans.staged import StagedKeys
from app.storage.scans.writers import PIECE_BYTES, WRITERS, text_bytes
from app.storage.staging.staged_index import StagedBatch
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


def test_a_long_value_of_a_dictionary_is_told_by_what_the_dictionary_holds(tmp_path: Path) -> None:
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
