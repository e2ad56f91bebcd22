"""Values of the conformance cases (tests/cases/README.md): as the API takes them, and in a form that compares."""

from __future__ import annotations

import base64
import math
from typing import Any

from app.core.types.datatype import DataType
from app.core.types.parser import parse_type

BINARY = ("BINARY", "VARBINARY", "BYTES")
TOLERANCE = {"FLOAT": 1e-6, "DOUBLE": 1e-12}


def to_json(data_type: DataType, value: Any) -> Any:
    """A case's value as a record takes it: binary as base64, the rest as it is."""
    if value is None:
        return None
    if data_type.kind in BINARY:
        return base64.b64encode(bytes.fromhex(value)).decode()
    if data_type.kind == "ARRAY":
        return [to_json(data_type.element_type, item) for item in value]
    if data_type.kind == "MAP":
        return [[to_json(data_type.key_type, k), to_json(data_type.element_type, v)] for k, v in value]
    if data_type.kind == "ROW":
        return {f.name: to_json(f.type, item) for f, item in zip(data_type.fields, value, strict=True)}
    return value


def from_json(data_type: DataType, value: Any) -> Any:
    """The API's answer in the cases' form."""
    if value is None:
        return None
    if data_type.kind in BINARY:
        return base64.b64decode(value).hex()
    if data_type.kind == "ARRAY":
        return [from_json(data_type.element_type, item) for item in value]
    if data_type.kind == "MAP":
        pairs = value.items() if isinstance(value, dict) else value
        key = data_type.key_type
        read = (
            int if key.kind in ("TINYINT", "SMALLINT", "INT", "BIGINT") and isinstance(value, dict) else (lambda k: k)
        )
        return [[from_json(key, read(k)), from_json(data_type.element_type, v)] for k, v in pairs]
    if data_type.kind == "ROW":
        return [from_json(f.type, value[f.name]) for f in data_type.fields]
    return value


def same(type_text: str, ours: Any, theirs: Any, *, unordered: bool = False) -> bool:
    """Whether two values in the cases' form are equal, as the cases' README says."""
    return _same(parse_type(type_text), ours, theirs, unordered)


def _same(data_type: DataType, ours: Any, theirs: Any, unordered: bool = False) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if data_type.kind in TOLERANCE:
        return _close(ours, theirs, TOLERANCE[data_type.kind])
    if data_type.kind == "ARRAY":
        if unordered:
            ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
        return len(ours) == len(theirs) and all(
            _same(data_type.element_type, a, b) for a, b in zip(ours, theirs, strict=True)
        )
    if data_type.kind == "MAP":
        ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
        return len(ours) == len(theirs) and all(
            _same(data_type.key_type, a[0], b[0]) and _same(data_type.element_type, a[1], b[1])
            for a, b in zip(ours, theirs, strict=True)
        )
    if data_type.kind == "ROW":
        return all(_same(f.type, a, b) for f, a, b in zip(data_type.fields, ours, theirs, strict=True))
    return bool(ours == theirs)


def _close(ours: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return bool(ours == theirs)
    return math.isclose(ours, theirs, rel_tol=tolerance) and math.copysign(1, ours) == math.copysign(1, theirs)
