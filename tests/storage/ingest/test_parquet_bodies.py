"""Parquet files as other programs write them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.errors import Invalid
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.bounds import Bounds
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.table.schema import TableSchema
from app.services.batches.batches import Upload
from tests.pieces import joined, listed
from tests.storage.ingest.test_every_format import PARQUET

TYPES = {"row": "ROW<a STRING>", "list": "ARRAY<STRING>", "map": "MAP<STRING, BYTES>"}
FIELDS = [{"name": "id", "type": "BIGINT"}, *({"name": name, "type": kind} for name, kind in TYPES.items())]
SCHEMA = TableSchema.from_json({"fields": FIELDS, "primaryKeys": ["id"], "options": {}})


def read(table: pa.Table, **written: Any) -> DecodedRecords:
    body = io.BytesIO()
    pq.write_table(table, body, **written)
    return joined(Upload(body.getvalue(), PARQUET).pieces(RecordDecoder(compile_plan(SCHEMA)), Bounds(1000)))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_texts_inside_columns_are_read_in_files_of_several_row_groups(rows: int) -> None:
    values: dict[str, list[Any]] = {
        "id": [*range(7)],
        "row": [{"a": "x"}, {"a": "y"}, None, {"a": None}] + [{"a": "x"}] * 3,
        "list": [["x", "y"], [], None, ["x"], [None], ["z"], []],
        "map": [[("k", b"1")], [], None, [("k", None), ("l", b"")], [], [("m", b"1")], []],
    }
    types = {"map": pa.map_(pa.string(), pa.binary())}
    sent = pa.table({name: pa.array(column, types.get(name)) for name, column in values.items()})
    records = read(sent, row_group_size=rows)
    assert {name: listed(records.columns[name]) for name in values} == values


def test_rows_that_pyarrow_leaves_out_are_not_lost_in_silence() -> None:
    """Of a column whose first page has no value pyarrow 26 yields no rows, and no error."""
    sent = pa.table({"id": [1], "list": [["x"]]})
    with pytest.raises(Invalid, match="row group 0 declares 1 rows, and 0 can be read"):
        read(sent, data_page_size=1)
