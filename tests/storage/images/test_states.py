"""State rows out of row groups: what is read for a key that is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from app.core.table.history import Run
from app.core.table.keys import token_of
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse, data_file
from app.files.named_files import file_of_run
from app.storage.images.states import rows_in_parquet
from tests.storage.images.imaged import PLAN, made


def test_of_a_row_group_without_the_key_only_the_tokens_are_read(warehouse: Warehouse) -> None:
    run = made(warehouse, 50)
    spoil(warehouse, run, "n")
    file = file_of_run("t1", run.id, replace(run.files[0], digest=None, block_digests=None))
    missing = next(key for key in range(1000, 2000) if run.files[0].min_token < token(key) < run.files[0].max_token)
    assert list(rows_in_parquet(warehouse, file, [token(missing)])) == []
    with pytest.raises(DamagedFile):
        list(rows_in_parquet(warehouse, file, [token(7)]))


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
