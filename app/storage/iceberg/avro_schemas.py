"""The Avro schemas of manifests and of their lists, from version 2 of Iceberg's table spec, with the field ids of the
spec.
"""

from __future__ import annotations

from typing import Any, Final


def _field(number: int, name: str, data_type: Any) -> dict[str, Any]:
    optional = {"default": None} if isinstance(data_type, list) else {}
    return {"name": name, "type": data_type, "field-id": number, **optional}


def _optional(number: int, name: str, data_type: Any) -> dict[str, Any]:
    return _field(number, name, ["null", data_type])


def _by_column(key: int, value: int, value_type: str) -> dict[str, Any]:
    """Return a map from column ids, which Avro has as a list of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_field(key, "key", "int"), _field(value, "value", value_type)],
    }
    return {"type": "array", "items": pair, "logicalType": "map"}


_DATA_FILE: Final = {
    "type": "record",
    "name": "r2",
    "fields": [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": []}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _optional(109, "value_counts", _by_column(119, 120, "long")),
        _optional(110, "null_value_counts", _by_column(121, 122, "long")),
        _optional(125, "lower_bounds", _by_column(126, 127, "bytes")),
        _optional(128, "upper_bounds", _by_column(129, 130, "bytes")),
        _optional(140, "sort_order_id", "int"),
    ],
}
MANIFEST: Final = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field(0, "status", "int"),
        _optional(1, "snapshot_id", "long"),
        _optional(3, "sequence_number", "long"),
        _optional(4, "file_sequence_number", "long"),
        _field(2, "data_file", _DATA_FILE),
    ],
}
MANIFEST_LIST: Final = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
    ],
}
