"""Rows that have no answer in bytes, in images of answers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.history import Run
from app.core.table.records import Record, RowKind
from app.files.layout import Warehouse, data_file
from app.storage.images import Images
from tests.services.builders import schema
from tests.storage.images.imaged import answered, build, files_of, run_of
from tests.written import read_run


@pytest.fixture
def images(images: Images) -> Images:
    """Which no process makes beside the test."""
    images.asking.builds = False
    return images


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
    run = timed(warehouse, odd)
    images.want("t1", run, TIMED.schema, TIMED)
    build(images)
    assert len(files_of(images)) == (odd < 101)
    answers = [answered(images, run, key, plan=TIMED) for key in range(600)]
    assert answers.count(None) == (odd if odd < 101 else 600)
    assert all(one is None or one[0].endswith(b'"t":"2026-01-01T00:00:00"}') for one in answers)
