"""Twins: the rows of a snapshot once more, as the files of a Paimon table without a primary key, for Paimon's own
clients to read (docs/decisions/0030).

``<table>/twin`` is that table's folder: ``bucket-0/`` has a data file for each twin, ``manifest/`` what names it,
``schema/`` its columns. The manifest list is written last: a twin is whole where its list is there.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.schema import Column, TableSchema
from app.files.folders import entries, remove_file
from app.files.layout import Warehouse, sync_folder, twin_file
from app.storage.paimon.paimon_manifests import DATA_FILE, MANIFEST, data_file_record, manifest_record
from app.storage.scans.shown import shown_schema

_GROUP_ROWS, _GROUP_BYTES = 2**17, 2**26  # of a row group, whichever is reached first


class Twin(NamedTuple):
    """The rows of a snapshot as a schema shows them, both by number."""

    snapshot_id: int
    schema_id: int

    @property
    def list_name(self) -> str:
        """The manifest list that names its rows."""
        return f"list-{self.snapshot_id}-{self.schema_id}"

    @property
    def empty_list_name(self) -> str:
        """The manifest list of what was added since: nothing."""
        return f"delta-{self.snapshot_id}-{self.schema_id}"

    @property
    def manifest_name(self) -> str:
        """The manifest that names its data file."""
        return f"manifest-{self.snapshot_id}-{self.schema_id}"

    @property
    def data_name(self) -> str:
        """Its data file."""
        return f"rows-{self.snapshot_id}-{self.schema_id}.parquet"

    @property
    def schema_name(self) -> str:
        """What says its columns; other twins may have it, too."""
        return f"schema-{self.schema_id}"

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """Folder and name of each of its files."""
        names = ("manifest", self.list_name), ("manifest", self.empty_list_name), ("manifest", self.manifest_name)
        return (*names, ("bucket-0", self.data_name), ("schema", self.schema_name))


_LIST: Final = re.compile(r"list-([0-9]+)-([0-9]+)")
_ASIDE: Final = "_writing-"
_ANY: Final = re.compile(r"(?:list|delta|manifest|rows)-([0-9]+)-([0-9]+)(?:\.parquet)?")


def whole_twins(warehouse: Warehouse, table_id: str) -> list[Twin]:
    """Return the twins of the table that are there, the newest first."""
    return _found(warehouse, table_id, _LIST)


def begun_twins(warehouse: Warehouse, table_id: str) -> list[Twin]:
    """Return the twins that have any file at all, the newest first."""
    return _found(warehouse, table_id, _ANY)


def _found(warehouse: Warehouse, table_id: str, pattern: re.Pattern[str]) -> list[Twin]:
    found = entries(warehouse, warehouse.path(*twin_file(table_id)), recursive=True)
    twins = (_twin_of(entry.name, pattern) for entry in found)
    return sorted({twin for twin in twins if twin is not None}, reverse=True)


def keep_twins(
    warehouse: Warehouse, table_id: str, kept: Collection[Twin], gone: Collection[Twin], before: datetime
) -> int:
    """Remove the files of the twins that are ``gone``, and of those that no twin in ``kept`` names the ones from
    before that moment: begun by a worker that died, or left by a client. Says how many.

    A twin that is in neither is being written: it began after somebody looked.
    """
    root = warehouse.path(*twin_file(table_id))
    named = {warehouse.path(*twin_file(table_id, *place)) for twin in kept for place in twin.files}
    files = [one for one in entries(warehouse, root, recursive=True) if not one.is_folder and one.path not in named]
    garbage = [one for one in files if _twin_of(one.name) in gone or (one.changed_at and one.changed_at < before)]
    return sum(remove_file(warehouse, one.path) for one in garbage)


def _twin_of(name: str, pattern: re.Pattern[str] = _ANY) -> Twin | None:
    match = pattern.fullmatch(name)
    return None if match is None else Twin(int(match[1]), int(match[2]))


def write_twin(
    warehouse: Warehouse,
    table_id: str,
    twin: Twin,
    schema: TableSchema,
    batches: Iterable[pa.RecordBatch],
    at_millis: int,
) -> int:
    """Write the rows that ``batches`` have, all columns of ``schema``, as ``twin``, and says how many there are.

    What was begun before is written again. Raise what reading and writing raise; then the twin is not whole.
    """
    rows, size = _write_rows(warehouse, twin_file(table_id, "bucket-0", twin.data_name), schema.columns, batches)
    _write(warehouse, twin_file(table_id, "schema", twin.schema_name), _schema_text(twin, schema, at_millis))
    named = [data_file_record(twin.data_name, size, rows, twin.schema_id, at_millis)] if rows else []
    manifest = _avro(DATA_FILE, named)
    _write(warehouse, twin_file(table_id, "manifest", twin.manifest_name), manifest)
    listed = [manifest_record(twin.manifest_name, len(manifest), len(named), twin.schema_id)] if rows else []
    _write(warehouse, twin_file(table_id, "manifest", twin.empty_list_name), _avro(MANIFEST, []))
    _write(warehouse, twin_file(table_id, "manifest", twin.list_name), _avro(MANIFEST, listed))
    return rows


def _schema_text(twin: Twin, schema: TableSchema, at_millis: int) -> bytes:
    fields = twin_fields(schema)
    told = {
        "version": 3,
        "id": twin.schema_id,
        "fields": fields,
        "highestFieldId": max(field["id"] for field in fields),
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {"bucket": "-1"},
        "timeMillis": at_millis,
    }
    return json.dumps(told).encode()


def twin_fields(schema: TableSchema) -> list[dict[str, Any]]:
    """Return the columns of a twin as Paimon's JSON; its rows have the defaults in them already."""
    return [{key: told for key, told in column.to_json().items() if key != "defaultValue"} for column in schema.columns]


def _write_rows(
    warehouse: Warehouse, segments: Sequence[str], columns: Sequence[Column], batches: Iterable[pa.RecordBatch]
) -> tuple[int, int]:
    """Return how many rows and bytes the data file came to."""
    rows, of = 0, shown_schema(columns)

    def write(file: Any) -> None:
        nonlocal rows
        with pq.ParquetWriter(file, of, compression="zstd", write_page_checksum=True) as writer:
            for group in _groups(batches, of):
                writer.write_table(group, row_group_size=max(len(group), 1))
                rows += len(group)

    size = _written(warehouse, segments, write)
    return rows, size


def _groups(batches: Iterable[pa.RecordBatch], of: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows in tables of about one row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _GROUP_ROWS or sum(one.nbytes for one in held) >= _GROUP_BYTES:
            yield pa.Table.from_batches(held, of)
            held = []
    if held:
        yield pa.Table.from_batches(held, of)


def _avro(schema: dict[str, Any], records: Sequence[Mapping[str, Any]]) -> bytes:
    import fastavro  # noqa: PLC0415  # of the extra paimon

    content = io.BytesIO()
    fastavro.writer(content, schema, records)
    return content.getvalue()


def _write(warehouse: Warehouse, segments: Sequence[str], content: bytes) -> None:
    _written(warehouse, segments, lambda file: file.write(content))


def _written(warehouse: Warehouse, segments: Sequence[str], write: Callable[[Any], object]) -> int:
    """Return how many bytes the file has that ``write`` wrote: it is there whole and for good, or not at all."""
    path = warehouse.path(*segments)
    if warehouse.is_store:  # what is put there is there whole
        with warehouse.filesystem.open_output_stream(path) as file:
            write(file)
    else:
        aside = warehouse.path(*segments[:-1], f"{_ASIDE}{uuid.uuid4().hex}")  # another worker may be at it, too
        warehouse.filesystem.create_dir(warehouse.path(*segments[:-1]), recursive=True)
        with warehouse.filesystem.open_output_stream(aside) as file:
            write(file)
        if warehouse.local:
            sync_folder(aside)
        warehouse.filesystem.move(aside, path)
        if warehouse.local:
            sync_folder(warehouse.path(*segments[:-1]))
    return int(warehouse.filesystem.get_file_info(path).size)
