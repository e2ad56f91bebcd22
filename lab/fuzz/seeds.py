"""``python -m lab.fuzz.seeds``: writes the inputs that are no text, as clients and the service write them; all others
are edited as they are. What fuzzing found stays next to them.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from app.core.plan.merging.fold import lift
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import DecodedRecords, RecordDecoder
from app.core.table.records import Record, RowKind
from app.core.table.schema import TableSchema
from app.core.types.kinds import Family
from app.files.arrow import arrow_field
from app.files.layout import Warehouse
from app.storage.images.making import write_answers, write_states
from app.storage.staging.staging import staging_file, write_batch
from lab.fuzz.tables import EVERY_TYPE, NAMED
from lab.fuzz.target import CORPUS
from tests.written import write_run

Seed = tuple[str, str, bytes]  # target, name, input


def seeds() -> Iterator[Seed]:
    """All of them."""
    for table, schema, name in ((b"a", EVERY_TYPE, "row"), (b"b", NAMED, "edit")):
        columns = _table(schema, {**_record(name), "_kind": "+I"})
        yield "arrow", name, table + _stream(columns)
        out = io.BytesIO()
        pq.write_table(columns.select(columns.column_names[:6]), out, compression="zstd", store_schema=False)
        yield "parquet", name, table + out.getvalue()
    repeated = pa.array(["x", None, "x"]).dictionary_encode()
    yield "arrow", "dictionary", b"b" + _stream(pa.table({"id": ["a", "a", "b"], "text": repeated}))
    body = b'{"records":[{"id":1}]}' * 3
    yield "codings", "gzip", b"a" + gzip.compress(body, mtime=0)
    yield "codings", "zstd", b"c" + zstandard.compress(body)
    yield "codings", "both", b"d" + zstandard.compress(gzip.compress(body, mtime=0))
    with tempfile.TemporaryDirectory() as folder:
        yield from _files(Path(folder))


def _record(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((CORPUS / "json" / name).read_bytes()[1:])["records"][0]
    return record


def _decoded(schema: TableSchema, record: dict[str, Any]) -> DecodedRecords:
    return RecordDecoder(compile_plan(schema)).decode([record])


def _table(schema: TableSchema, record: dict[str, Any]) -> pa.Table:
    """The record as columns; Arrow's times of day are another type than those of a table."""
    columns = [column for column in schema.columns if column.type.family is not Family.TIME]
    decoded = _decoded(schema, record).columns
    return pa.table(
        [decoded[column.name] for column in columns], pa.schema([arrow_field(column) for column in columns])
    )


def _stream(columns: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, columns.schema) as writer:
        writer.write_table(columns)
    return out.getvalue()


def _files(folder: Path) -> Iterator[Seed]:
    warehouse, plan = Warehouse(str(folder)), compile_plan(NAMED)
    write_batch(warehouse, "t", "b", EVERY_TYPE, _decoded(EVERY_TYPE, _record("row")))
    yield "staged_files", "row", Path(warehouse.path(*staging_file("t", "b.parquet"))).read_bytes()
    values: dict[str, Any] = {column.name: None for column in NAMED.columns}
    records = [Record(RowKind.INSERT, {**values, "id": f"k{n}"}, (1, n), None) for n in range(3)]
    write_run(folder / "run", plan, [lift(plan, record) for record in records], token=lambda key: int(key[0][1:]))
    [file] = (folder / "run").glob("*.parquet")
    yield "run_files", "rows", file.read_bytes()
    with pq.ParquetFile(file) as source:
        write_states(source, folder / "states")
        write_answers(source, folder / "answers", plan, plan)
    for name in ("states", "answers"):
        yield "images", name, (folder / name).read_bytes()


def main() -> None:
    """Writes them."""
    for target, name, content in seeds():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        (CORPUS / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
