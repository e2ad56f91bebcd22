"""The schema of a published table in the form of each format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.core.plan.columns.delta_schema import delta_schema
from app.core.plan.columns.iceberg_schema import iceberg_schema
from app.core.table.published import Format
from app.core.table.schema import TableSchema

SCHEMAS: Mapping[Format, Callable[[TableSchema], Any]] = {
    Format.DELTA: delta_schema,
    Format.ICEBERG: iceberg_schema,
}
"""The visible columns of a table, as JSON that a format has."""
