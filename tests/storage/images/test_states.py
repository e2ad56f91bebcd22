"""State rows out of row groups and images: of keys that are not there, many as columns, within bounds, and odd ones."""

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
from app.core.plan.records.answers import key_json
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
from tests.storage.images.imaged import PLAN, answered, build, built, files_of, made, remove_parquet, run_of
from tests.written import read_run

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


KEYS = [(number,) for number in range(10)]
TOKENS = [token_of(PLAN.schema, key) for key in KEYS]


@pytest.mark.parametrize("with_images", [False, True])
def test_state_rows_beyond_the_bound_are_not_read(images: Images, warehouse: Warehouse, with_images: bool) -> None:
    run = made(warehouse, len(KEYS))
    if with_images:
        built(images, run)
    names = PLAN.schema.primary_key
    with pytest.raises(TooMuchAtOnce):
        images.find_all("t1", run, TOKENS, names, KEYS, ReadBytes(20))
    assert None not in images.find_all("t1", run, TOKENS, names, KEYS, ReadBytes())


def test_answers_beyond_the_bound_are_not_read(images: Images, warehouse: Warehouse) -> None:
    run = made(warehouse, len(KEYS))
    built(images, run)
    texts = [key_json(PLAN.schema, key) for key in KEYS]
    asked = ("t1", run, PLAN.schema, PLAN, np.array(TOKENS), texts)
    with pytest.raises(TooMuchAtOnce):
        images.answers(*asked, ReadBytes(20))
    assert None not in images.answers(*asked, ReadBytes())


TIMED = compile_plan(schema(("id", "BIGINT"), ("t", "TIMESTAMP(3)")))


def timed(warehouse: Warehouse, odd: int) -> Run:
    """600 rows; the times of the first ``odd`` of the file are none that Python has."""
    records = [Record(RowKind.INSERT, {"id": number, "t": datetime(2026, 1, 1)}) for number in range(600)]
    run = run_of(warehouse, records, TIMED)
    path = Path(warehouse.path(*data_file("t1", "r1", run.files[0].name)))
    rows = pq.read_table(path)
    times = rows.column("t").cast(pa.int64()).to_numpy().copy()
    times[:odd] = 2**62
    place = rows.schema.get_field_index("t")
    field = rows.schema.field(place)
    pq.write_table(rows.set_column(place, field, pa.array(times).view(field.type)), path)
    return read_run(warehouse, "t1", "r1", 0)


@pytest.mark.parametrize("odd", [1, 3, 101])
def test_rows_without_json_are_left_to_their_state_rows_unless_they_are_many(
    images: Images, warehouse: Warehouse, odd: int
) -> None:
    images.asking.builds = False
    run = timed(warehouse, odd)
    images.want("t1", run, TIMED.schema, TIMED)
    build(images)
    assert len(files_of(images)) == (odd < 101)
    answers = [answered(images, run, key, plan=TIMED) for key in range(600)]
    assert answers.count(None) == (odd if odd < 101 else 600)
    assert all(answer is None or answer[0].endswith(b'"t":"2026-01-01T00:00:00"}') for answer in answers)
