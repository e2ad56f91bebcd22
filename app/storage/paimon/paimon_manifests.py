"""Records of Paimon's manifests, as its format of files has them (manifest list version 2, manifest version 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_EMPTY_ROW: Final = bytes(12)  # Paimon's BinaryRow of no fields: how many it has (four bytes), then one word of flags
_EMPTY_STATS: Final = {"_MIN_VALUES": _EMPTY_ROW, "_MAX_VALUES": _EMPTY_ROW, "_NULL_COUNTS": []}
_COMPACTED: Final = 1  # Paimon's FileSource of a file that a compaction made


def _maybe(name: str, data_type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", data_type], "default": None}


def _stats(name: str) -> dict[str, Any]:
    counts = {"type": "array", "items": ["null", "long"]}
    fields = [{"name": "_MIN_VALUES", "type": "bytes"}, {"name": "_MAX_VALUES", "type": "bytes"}]
    return {"type": "record", "name": f"record{name}", "fields": [*fields, _maybe("_NULL_COUNTS", counts)]}


def _fields(*fields: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": data_type} for name, data_type in fields]


_TEXTS: Final = {"type": "array", "items": "string"}
_META: Final = {
    "type": "record",
    "name": "DataFileMeta",
    "fields": [
        *_fields(
            ("_FILE_NAME", "string"),
            ("_FILE_SIZE", "long"),
            ("_ROW_COUNT", "long"),
            ("_MIN_KEY", "bytes"),
            ("_MAX_KEY", "bytes"),
            ("_KEY_STATS", _stats("_KEY_STATS")),
            ("_VALUE_STATS", _stats("_VALUE_STATS")),
            ("_MIN_SEQUENCE_NUMBER", "long"),
            ("_MAX_SEQUENCE_NUMBER", "long"),
            ("_SCHEMA_ID", "long"),
            ("_LEVEL", "int"),
            ("_EXTRA_FILES", _TEXTS),
        ),
        _maybe("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        _maybe("_DELETE_ROW_COUNT", "long"),
        _maybe("_EMBEDDED_FILE_INDEX", "bytes"),
        _maybe("_FILE_SOURCE", "int"),
        _maybe("_VALUE_STATS_COLS", _TEXTS),
        _maybe("_EXTERNAL_PATH", "string"),
        _maybe("_FIRST_ROW_ID", "long"),
        _maybe("_WRITE_COLS", _TEXTS),
    ],
}
DATA_FILE: Final[dict[str, Any]] = {
    "type": "record",
    "name": "ManifestEntry",
    "fields": _fields(
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_TOTAL_BUCKETS", "int"),
        ("_FILE", _META),
    ),
}
MANIFEST: Final[dict[str, Any]] = {
    "type": "record",
    "name": "ManifestFileMeta",
    "fields": _fields(
        ("_VERSION", "int"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_NUM_ADDED_FILES", "long"),
        ("_NUM_DELETED_FILES", "long"),
        ("_PARTITION_STATS", _stats("_PARTITION_STATS")),
        ("_SCHEMA_ID", "long"),
    ),
}


def data_file_record(name: str, size_bytes: int, rows: int, schema_id: int, at_millis: int) -> Mapping[str, Any]:
    """Return the entry of a manifest that adds a data file in the one bucket of a table without keys."""
    meta = {
        "_FILE_NAME": name,
        "_FILE_SIZE": size_bytes,
        "_ROW_COUNT": rows,
        "_MIN_KEY": _EMPTY_ROW,
        "_MAX_KEY": _EMPTY_ROW,
        "_KEY_STATS": _EMPTY_STATS,
        "_VALUE_STATS": _EMPTY_STATS,
        "_MIN_SEQUENCE_NUMBER": 0,
        "_MAX_SEQUENCE_NUMBER": max(rows - 1, 0),
        "_SCHEMA_ID": schema_id,
        "_LEVEL": 0,
        "_EXTRA_FILES": [],
        "_CREATION_TIME": at_millis,
        "_FILE_SOURCE": _COMPACTED,
        "_VALUE_STATS_COLS": [],  # of no column
    }
    added = {"_VERSION": 2, "_KIND": 0, "_PARTITION": _EMPTY_ROW, "_BUCKET": 0, "_TOTAL_BUCKETS": -1}
    return {**added, "_FILE": meta}


def manifest_record(name: str, size_bytes: int, files: int, schema_id: int) -> Mapping[str, Any]:
    """Return the entry of a manifest list for a manifest that adds ``files`` data files."""
    return {
        "_VERSION": 2,
        "_FILE_NAME": name,
        "_FILE_SIZE": size_bytes,
        "_NUM_ADDED_FILES": files,
        "_NUM_DELETED_FILES": 0,
        "_PARTITION_STATS": _EMPTY_STATS,
        "_SCHEMA_ID": schema_id,
    }
