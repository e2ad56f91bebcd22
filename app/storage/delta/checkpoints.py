"""Checkpoints of a Delta log, each with a whole version in one file, and the removal of earlier files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.published import Published
from app.files.folders import entries, remove_file
from app.files.layout import Warehouse, delta_log
from app.storage.delta.files import added_files
from app.storage.delta.log import metadata_of, protocol_of
from app.storage.published.replaced import replace_file

LAST_CHECKPOINT: Final = "_last_checkpoint"
_NUMBERED: Final = re.compile(r"\.?(\d{20})\.(?:json|checkpoint\.parquet)(?:\.[0-9a-f]{32})?")

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
# PROTOCOL.md, "Checkpoint Schema".
_SCHEMA: Final = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("tags", _TEXTS),
                    ("deletionVector", _VECTOR),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def checkpoint_name(version: int) -> str:
    """Return the checkpoint of a version."""
    return f"{version:020}.checkpoint.parquet"


def write_checkpoint(warehouse: Warehouse, published: Published) -> int:
    """Write the checkpoint of a version, if there is none; return its number of actions."""
    added = added_files(warehouse, published)
    segments = delta_log(published.version.table_id, checkpoint_name(published.version.version))
    if not warehouse.filesystem.get_file_info(warehouse.path(*segments)).is_file:
        replace_file(warehouse, segments, _content(published, added))
    return len(added) + 2


def _content(published: Published, added: Mapping[str, Mapping[str, Any]]) -> bytes:
    metadata = metadata_of(published, added)
    metadata |= {"configuration": [*metadata["configuration"].items()]}
    metadata |= {"format": {**metadata["format"], "options": []}}
    files = [{"add": {**file, "partitionValues": [], "dataChange": False}} for file in added.values()]
    rows: list[dict[str, Any]] = [{"protocol": protocol_of(added)}, {"metaData": metadata}, *files]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), sink)
    return sink.getvalue()


def name_checkpoint(warehouse: Warehouse, table_id: str, version: int, size: int) -> None:
    """Name the checkpoint that readers begin from; it holds ``size`` actions."""
    content = json.dumps({"version": version, "size": size}).encode()
    segments = delta_log(table_id, LAST_CHECKPOINT)
    path = warehouse.path(*segments)
    if warehouse.filesystem.get_file_info(path).is_file:
        with warehouse.filesystem.open_input_stream(path) as source:
            if source.read() == content:
                return
    replace_file(warehouse, segments, content)


def forget_versions(warehouse: Warehouse, table_id: str, first: int) -> int:
    """Remove the files of versions before ``first``, which has a checkpoint; return how many."""
    versions = [(entry.path, _number(entry.name)) for entry in entries(warehouse, warehouse.path(*delta_log(table_id)))]
    gone: Sequence[str] = [path for path, number in versions if number is not None and number < first]
    return sum(remove_file(warehouse, path) for path in gone)


def _number(name: str) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return None if match is None else int(match[1])
