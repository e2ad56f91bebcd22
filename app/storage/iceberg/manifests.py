"""Manifests of a run, and its files of position deletes; the same for the changes on top of a version's runs.

The bytes of a run's manifests depend only on the run. So each is written once and named by every version with the run,
and two concurrent workers write the same.
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
from pyroaring import BitMap, FrozenBitMap

from app.core.plan.columns.iceberg_schema import iceberg_schema
from app.core.table.history import Run
from app.core.table.published import Published, PublishedVersion
from app.core.table.schema import TableSchema
from app.core.types.kinds import Kind
from app.files.layout import Warehouse, changelog_file, data_file, iceberg_file, run_in
from app.files.named_files import file_of_changelog, file_of_run
from app.storage.iceberg.avro_schemas import MANIFEST
from app.storage.published.facts import Bound, FileFacts, facts_of, facts_of_changes
from app.storage.published.replaced import replace_file
from app.storage.published.replaced_rows import Hidden, hidden_rows

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
    """The content type of the files of a manifest."""

    DATA = 0
    DELETES = 1


@dataclass(frozen=True)
class Manifest:
    """A written manifest: its URI, its size in bytes, and the totals of its files."""

    uri: str
    size_bytes: int
    content: Content
    files: int
    rows: int


def avro_bytes(schema: dict[str, Any], records: Sequence[Mapping[str, Any]], header: Mapping[str, str]) -> bytes:
    """Return an Avro file of ``records``. Its sync marker follows from the header: equal files are equal bytes."""
    marker = xxhash.xxh3_128_digest(repr(sorted(header.items())).encode())
    content = io.BytesIO()
    fastavro.writer(content, schema, records, codec="deflate", metadata=dict(header), sync_marker=marker)
    return content.getvalue()


def write_manifests(warehouse: Warehouse, published: Published, run: Run) -> list[Manifest]:
    """Write and return the manifests of a run: one for its data files, and one for their deleted rows, if any.

    Raise as ``facts_of`` does.
    """
    facts = [facts_of(warehouse, published, run, file) for file in run.files]
    written, table_id = published.written[run.schema_id], published.version.table_id
    paths = [warehouse.uri(*data_file(table_id, run.id, file.name)) for file in run.files]
    data = [
        _entry(Content.DATA, path, file.rows, file.size_bytes, _stats(written, file.rows, known))
        for path, file, known in zip(paths, run.files, facts, strict=True)
    ]
    dead = {path: known.dead for path, known in zip(paths, facts, strict=True) if known.dead}
    deletes_file = iceberg_file(table_id, "runs", run.id, "deletes.parquet")
    deletes = [_deletes(warehouse, deletes_file, dead)] if dead else []
    segments = {content: run_manifest(table_id, run.id, content) for content in Content}
    return _write_all(warehouse, segments, (run.schema_id, written), {Content.DATA: data, Content.DELETES: deletes})


def write_change_manifests(
    warehouse: Warehouse, published: Published, before: PublishedVersion | None
) -> list[Manifest]:
    """Write the manifests of a version's changes, and of the rows that they hide; none if there are no changes.

    Files with places that ``before`` names, and that are the same, are named again. Raise ``DamagedFile``.
    """
    version = published.version
    data = []
    for changes in published.changes:
        for file in changes.files:
            named = file_of_changelog(version.table_id, changes.snapshot_id, file)
            known = facts_of_changes(warehouse, published, changes, named)
            stats = _stats(published.written[changes.schema_id], file.rows, known)
            path = warehouse.uri(*changelog_file(version.table_id, file.name))
            data.append(_entry(Content.DATA, path, file.rows, file.size_bytes, stats))
    same_base = before is not None and before.base_id == version.base_id
    earlier = _read_deletes(warehouse, before) if before is not None and same_base else {}
    deletes = []
    for place, hidden in sorted(_newly_hidden(warehouse, published).items()):
        _, _, *folders, name = segments = place.split("/")
        path, folder = warehouse.uri(*segments), iceberg_file(version.table_id, "runs", run_in(folders))
        entry = earlier.get(path)
        # On the same base the hidden rows of a file only grow: an equal number means equal rows.
        if entry is None or entry["data_file"]["record_count"] != len(hidden) or not _is_in(warehouse, folder, entry):
            entry = _deletes(warehouse, (*folder, f"{name}.{version.version}.hidden"), {path: hidden})
        deletes.append(entry)
    places = {content: change_manifest(version, content) for content in Content}
    return _write_all(
        warehouse, places, (version.schema_id, published.schema), {Content.DATA: data, Content.DELETES: deletes}
    )


def _is_in(warehouse: Warehouse, folder: tuple[str, ...], entry: Mapping[str, Any]) -> bool:
    """Return whether the file of a delete entry is in the folder of its run. Until November 2026 those of partitions
    were written elsewhere, and were removed too early.
    """
    return str(entry["data_file"]["file_path"]).startswith(f"{warehouse.uri(*folder)}/")


def _newly_hidden(warehouse: Warehouse, published: Published) -> Hidden:
    """Return the rows that changes hide, without those in the manifests of runs, so that each counts once."""
    hidden = {**hidden_rows(warehouse, published)}
    for run in published.runs:
        for file in run.files:
            place = file_of_run(published.version.table_id, run.id, file).path
            if place in hidden:
                hidden[place] -= facts_of(warehouse, published, run, file).dead
    return {place: rows for place, rows in hidden.items() if rows}


def change_manifest(version: PublishedVersion, content: Content) -> tuple[str, ...]:
    """Return the segments of a manifest of a version's changes."""
    return iceberg_file(version.table_id, "metadata", f"changes-{version.version}-{_name(content)}")


def _read_deletes(warehouse: Warehouse, version: PublishedVersion) -> dict[str, dict[str, Any]]:
    """Return the delete entries of an earlier version, by the data file whose rows they hide."""
    entries = read_avro(warehouse, change_manifest(version, Content.DELETES))
    return {entry["data_file"]["lower_bounds"][0]["value"].decode(): entry for entry in entries}


def read_avro(warehouse: Warehouse, segments: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the records of an Avro file; none if it is gone."""
    try:
        with warehouse.filesystem.open_input_stream(warehouse.path(*segments)) as source:
            records: Iterable[Any] = fastavro.reader(io.BytesIO(source.read()))
            return [*records]
    except FileNotFoundError:
        return []


def _write_all(
    warehouse: Warehouse,
    segments: Mapping[Content, tuple[str, ...]],
    under: tuple[int, TableSchema],
    manifests: Mapping[Content, Sequence[Mapping[str, Any]]],
) -> list[Manifest]:
    """Write the manifests that have entries, ``under`` a schema with this id."""
    return [
        _write(warehouse, segments[content], under, content, entries)
        for content, entries in manifests.items()
        if entries
    ]


def _write(
    warehouse: Warehouse,
    segments: tuple[str, ...],
    under: tuple[int, TableSchema],
    content: Content,
    entries: Sequence[Mapping[str, Any]],
) -> Manifest:
    schema_id, schema = under
    header = {
        "schema": json.dumps(iceberg_schema(schema) | {"schema-id": schema_id}),
        "schema-id": str(schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": content.name.lower(),
    }
    written = avro_bytes(MANIFEST, entries, header)
    replace_file(warehouse, segments, written)
    rows = sum(entry["data_file"]["record_count"] for entry in entries)
    return Manifest(warehouse.uri(*segments), len(written), content, len(entries), rows)


def _name(content: Content) -> str:
    return f"{content.name.lower()}.avro"


def run_manifest(table_id: str, run_id: str, content: Content) -> tuple[str, ...]:
    """Return the segments of a run's manifest."""
    return iceberg_file(table_id, "runs", run_id, _name(content))


def _entry(content: Content, path: str, rows: int, size: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest entry of a file; snapshot and sequence number are inherited from the list that names it
    first.
    """
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


def _deletes(
    warehouse: Warehouse, segments: tuple[str, ...], dead: Mapping[str, BitMap | FrozenBitMap]
) -> dict[str, Any]:
    """Write the file of deleted rows by data file; return its entry. Each data file has a row group, so that its
    readers skip the others.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _DELETES, compression="zstd", store_schema=False) as writer:
        for path in sorted(dead):
            places = pa.array(dead[path], pa.int64())
            writer.write_table(pa.table([pa.repeat(path, len(places)), places], schema=_DELETES))
    replace_file(warehouse, segments, sink.getvalue())
    more = {f"{end}_bounds": [{"key": _PATH_ID, "value": bound(dead).encode()}] for end, bound in _ENDS.items()}
    rows, size = sum(map(len, dead.values())), sink.getbuffer().nbytes
    return _entry(Content.DELETES, warehouse.uri(*segments), rows, size, more)


def _stats(written: TableSchema, rows: int, facts: FileFacts) -> dict[str, Any]:
    columns = written.by_name
    nulls = [(columns[name].id, count) for name, count in facts.null_counts]
    bounds = [(columns[name].id, _BINARY[columns[name].type.kind], low, high) for name, low, high in facts.bounds]
    return {
        "value_counts": _pairs((number, rows) for number, _ in nulls),
        "null_value_counts": _pairs(nulls),
        "lower_bounds": _pairs((number, binary(low)) for number, binary, low, _ in bounds),
        "upper_bounds": _pairs((number, binary(high)) for number, binary, _, high in bounds),
        "sort_order_id": 0,
    }


def _pairs(items: Sequence[tuple[int, Any]] | Iterator[tuple[int, Any]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in items]


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
