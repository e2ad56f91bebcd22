"""The schema of a run's files, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.records import TOKEN_COLUMN
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.files.arrow import arrow_field, hidden_field

# Few rows: dictionaries, and a context of zstd for each column, would take most of the time.
FEW_ROWS: Final[Mapping[str, Any]] = {"compression": "snappy", "use_dictionary": False}
MANY_ROWS: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "write_page_index": True,
    "store_schema": False,
    "store_decimal_as_integer": True,
}
# Size of a row group in memory; encoded it has some 16 MiB.
ROW_GROUP_BYTES: Final = 24 * 2**20


def run_schema(plan: MergePlan) -> pa.Schema:
    """Return the schema of a run's files: the columns, the hidden columns, the token, each with its field ids."""
    name = f"run schema {[column.name for column in plan.hidden]}"
    known: pa.Schema | None = plan.schema.worked_out.get(name)
    if known is None:
        visible = [arrow_field(column) for column in (*plan.schema.key_columns, *plan.schema.value_columns)]
        hidden = [hidden_field(column.name, column.type) for column in plan.hidden]
        token = hidden_field(TOKEN_COLUMN, DataType(Kind.BIGINT))
        known = plan.schema.worked_out.setdefault(name, pa.schema([*visible, *hidden, token]))
    return known
