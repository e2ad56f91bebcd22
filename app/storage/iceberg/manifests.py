"""Manifests of a run, and the files with the places of its rows that are no rows of the table.

They follow from the run alone, byte for byte, so that each is written once and named by every version with the run, and
two workers that write at once write the same.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyroaring import FrozenBitMap

from app.core.plan.columns.iceberg_schema import iceberg_schema
from app.core.table.history import DataFile, Run
from app.core.table.published import Published
from app.core.table.schema import TableSchema
from app.core.types.kinds import Kind
from app.files.layout import Warehouse, data_file, iceberg_file
from app.storage.iceberg.avro_schemas import MANIFEST
from app.storage.published.facts import Bound, FileFacts, facts_of
from app.storage.published.replaced import replace_file

_ADDED: Final = 1  # status of an entry
_PATH_ID, _PLACE_ID = 2147483546, 2147483545  # Iceberg's reserved field ids
_EPOCH: Final = date(1970, 1, 1)
_ENDS: Final[Mapping[str, Callable[[Iterable[str]], str]]] = {"lower": min, "upper": max}
_DELETES: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": str(_PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": str(_PLACE_ID).encode()}),
    ]
)


class Content(IntEnum):
    """What the files of a manifest hold."""

    DATA = 0
    DELETES = 1


@dataclass(frozen=True)
class Manifest:
    """A manifest that is there: its URI, its size in bytes, and what its files come to."""

    uri: str
    size_bytes: int
    content: Content
    files: int
    rows: int


def avro_bytes(schema: dict[str, Any], records: Sequence[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:
    """Return an Avro file of ``records``. Its sync marker follows from what it holds: equal files are equal bytes."""
    marker = xxhash.xxh3_128_digest(repr((sorted(header.items()), records)).encode())
    content = io.BytesIO()
    fastavro.writer(content, schema, records, codec="deflate", metadata=dict(header), sync_marker=marker)
    return content.getvalue()


def write_manifests(warehouse: Warehouse, published: Published, run: Run) -> list[Manifest]:
    """Write the manifests of a run: of its data files, and of the places in them that are deleted, if any are.

    Raise as ``facts_of`` does.
    """
    facts = [facts_of(warehouse, published, run, file) for file in run.files]
    written, table_id = published.written[run.schema_id], published.version.table_id
    paths = [warehouse.uri(*data_file(table_id, run.id, file.name)) for file in run.files]
    data = [
        _entry(Content.DATA, path, file.rows, file.size_bytes, _stats(written, file, known))
        for path, file, known in zip(paths, run.files, facts, strict=True)
    ]
    dead = {path: known.dead for path, known in zip(paths, facts, strict=True) if known.dead}
    manifests = {Content.DATA: data, Content.DELETES: [_deletes(warehouse, table_id, run, dead)] if dead else []}
    return [_write(warehouse, published, run, content, entries) for content, entries in manifests.items() if entries]


def _write(
    warehouse: Warehouse, published: Published, run: Run, content: Content, entries: Sequence[Mapping[str, Any]]
) -> Manifest:
    segments = run_manifest(published.version.table_id, run.id, content)
    header = {
        "schema": json.dumps(iceberg_schema(published.written[run.schema_id]) | {"schema-id": run.schema_id}),
        "schema-id": str(run.schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": content.name.lower(),
    }
    written = avro_bytes(MANIFEST, entries, header)
    replace_file(warehouse, segments, written)
    rows = sum(entry["data_file"]["record_count"] for entry in entries)
    return Manifest(warehouse.uri(*segments), len(written), content, len(entries), rows)


def run_manifest(table_id: str, run_id: str, content: Content) -> tuple[str, ...]:
    """Return the segments of a run's manifest."""
    return iceberg_file(table_id, "runs", run_id, f"{content.name.lower()}.avro")


def _entry(content: Content, path: str, rows: int, size: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of a file; snapshot and sequence number are those of the list that names it first."""
    file = {
        "content": content,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": rows,
        "file_size_in_bytes": size,
        **more,
    }
    return {"status": _ADDED, "data_file": file}


def _deletes(warehouse: Warehouse, table_id: str, run: Run, dead: Mapping[str, FrozenBitMap]) -> dict[str, Any]:
    """Write the file that names the dead rows by data file; returns its entry. Each data file has a row group, so that
    who reads one of them passes over the others.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _DELETES, compression="zstd", store_schema=False) as writer:
        for path in sorted(dead):
            places = pa.array(dead[path], pa.int64())
            writer.write_table(pa.table([pa.repeat(path, len(places)), places], schema=_DELETES))
    segments = iceberg_file(table_id, "runs", run.id, "deletes.parquet")
    replace_file(warehouse, segments, sink.getvalue())
    more = {f"{end}_bounds": [{"key": _PATH_ID, "value": of(dead).encode()}] for end, of in _ENDS.items()}
    rows, size = sum(map(len, dead.values())), sink.getbuffer().nbytes
    return _entry(Content.DELETES, warehouse.uri(*segments), rows, size, more)


def _stats(written: TableSchema, file: DataFile, facts: FileFacts) -> dict[str, Any]:
    columns = written.by_name
    nulls = [(columns[name].id, count) for name, count in facts.null_counts]
    bounds = [(columns[name].id, _BINARY[columns[name].type.kind], low, high) for name, low, high in facts.bounds]
    return {
        "value_counts": _pairs((number, file.rows) for number, _ in nulls),
        "null_value_counts": _pairs(nulls),
        "lower_bounds": _pairs((number, binary(low)) for number, binary, low, _ in bounds),
        "upper_bounds": _pairs((number, binary(high)) for number, binary, _, high in bounds),
        "sort_order_id": 0,
    }


def _pairs(found: Sequence[tuple[int, Any]] | Iterator[tuple[int, Any]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in found]


def _int(value: Any) -> bytes:
    return struct.pack("<i", value)


def _text(value: Any) -> bytes:
    return str(value).encode()


# Single values as Iceberg's spec has them (appendix D), of the kinds whose bounds ``FileFacts`` has.
_BINARY: Final[Mapping[Kind, Callable[[Bound], bytes]]] = {
    **dict.fromkeys((Kind.TINYINT, Kind.SMALLINT, Kind.INT), _int),
    Kind.BIGINT: lambda value: struct.pack("<q", value),
    Kind.DATE: lambda value: _int((value - _EPOCH).days if isinstance(value, date) else value),
    **dict.fromkeys((Kind.CHAR, Kind.VARCHAR, Kind.STRING), _text),
}
