"""State rows out of row groups and images: what is read for a key that is not there, and many as whole columns."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random, randbytes

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run
from app.core.table.keys import token_of
from app.core.table.records import TOKEN_COLUMN, Record, RowKind
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse, data_file
from app.files.named_files import file_of_run
from app.storage.images import Images, ReadBytes, TooMuchAtOnce, making, states
from app.storage.images.container import BLOCK_ROWS, Container
from app.storage.images.making import write_states
from app.storage.images.states import rows_in_parquet
from tests.services.builders import schema
from tests.storage.images.imaged import PLAN, built, made, remove_parquet, run_of

COUNT = 2_000


def test_of_a_row_group_without_the_key_only_the_tokens_are_read(warehouse: Warehouse) -> None:
    run = made(warehouse, 50)
    spoil(warehouse, run, "n")
    file = file_of_run("t1", run.id, replace(run.files[0], digest=None, block_digests=None))
    missing = next(key for key in range(1000, 2000) if run.files[0].min_token < token(key) < run.files[0].max_token)
    assert list(rows_in_parquet(warehouse, file, [token(missing)])) == []
    with pytest.raises(DamagedFile):
        list(rows_in_parquet(warehouse, file, [token(7)]))


@pytest.mark.parametrize("with_images", [False, True])
@pytest.mark.parametrize("many_pieces", [False, True])
def test_many_rows_as_columns_are_the_rows_of_lookups(
    tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, with_images: bool, many_pieces: bool
) -> None:
    if many_pieces:
        monkeypatch.setattr(making, "_MOST_BLOCK_ROWS", BLOCK_ROWS)
        monkeypatch.setattr(states, "_TAKEN_BYTES", 100)
    run = made(warehouse, COUNT, token=lambda key: int(key[0]) // 2, rows_per_group=900)
    images = Images(tmp_path / "images", warehouse)
    if with_images:
        built(images, run)
        remove_parquet(warehouse, run)
    wanted = Random(1).sample(range(-5, COUNT // 2 + 5), 400)
    for tokens in ([], [-1], [0], [COUNT // 2 - 1], wanted, [*range(COUNT // 2)]):
        found = images.columns("t1", run, np.unique(np.array(tokens, dtype=np.int64)), ReadBytes())
        expected = sorted(number for one in tokens for number in (2 * one, 2 * one + 1) if 0 <= number < COUNT)
        assert (found is None) == (not expected)
        if found is not None:
            assert found.batch.column("id").to_pylist() == expected
            assert found.batch.column("n").to_pylist() == [str(number) for number in expected]
            assert found.tokens.tolist() == [number // 2 for number in expected]
    with pytest.raises(TooMuchAtOnce):
        images.columns("t1", run, np.arange(COUNT // 2), ReadBytes(COUNT))
    images.close()


@pytest.mark.parametrize("with_images", [False, True])
def test_many_state_rows_are_those_of_one_lookup_each(
    tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, with_images: bool
) -> None:
    monkeypatch.setattr(states, "_TAKEN_BYTES", 500)  # several pieces of a block
    plan = compile_plan(
        schema(
            ("id", "BIGINT"), ("at", "TIMESTAMP(6)"), ("tags", "ARRAY<ROW<a INT, b STRING>>"), ("m", "MAP<INT, INT>")
        )
    )
    empty, full = (
        {"at": None, "tags": [], "m": {}},
        {"at": datetime(2026, 1, 2, 3), "tags": [{"a": 1}, None], "m": {1: 2}},
    )
    records = [Record(RowKind.INSERT, {"id": number, **(full if number % 2 else empty)}) for number in range(99)]
    run = run_of(warehouse, records, plan, rows_per_group=40)
    images = Images(tmp_path / "images", warehouse)
    if with_images:
        built(images, run, plan)
        remove_parquet(warehouse, run)
    keys = [(key,) for key in Random(2).sample(range(-5, 105), 60)]
    tokens = [token_of(plan.schema, key) for key in keys]
    many = images.find_all("t1", run, tokens, ("id",), keys, ReadBytes())
    assert many == [images.find("t1", run, one, ("id",), key) for one, key in zip(tokens, keys, strict=True)]
    assert [row is None for row in many] == [not 0 <= key < 99 for [key] in keys]
    images.close()


@pytest.mark.parametrize(("length", "rows"), [(1, 512 * BLOCK_ROWS), (1_000, 32 * BLOCK_ROWS), (50_000, BLOCK_ROWS)])
def test_a_block_has_as_many_rows_as_make_some_megabytes(tmp_path: Path, length: int, rows: int) -> None:
    count = 3 * BLOCK_ROWS
    batch = pa.table({TOKEN_COLUMN: pa.array(range(count)), "n": [randbytes(length) for _ in range(count)]})
    pq.write_table(batch, tmp_path / "file", use_dictionary=False, compression="none")
    write_states(pq.ParquetFile(tmp_path / "file"), tmp_path / "image")
    assert Container(tmp_path / "image").rows_per_entry == pytest.approx(rows, rel=0.1)


def token(key: int) -> int:
    return token_of(PLAN.schema, (key,))


def spoil(warehouse: Warehouse, run: Run, column: str) -> None:
    """Whoever reads the column now finds nothing that can be read."""
    path = Path(warehouse.path(*data_file("t1", run.id, run.files[0].name)))
    metadata = pq.read_metadata(path)
    place = metadata.schema.names.index(column)
    chunk = metadata.row_group(0).column(place)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(content)
