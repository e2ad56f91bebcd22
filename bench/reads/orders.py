"""Orders: rows of 12 columns with keys of several kinds, and runs of them written directly, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.core.table.history import Run
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.files.arrow import arrow_field
from app.files.layout import Warehouse, run_folder
from app.files.tokens import tokens_of
from tests.written import read_run

FILE_ROWS = 1_000_000
GROUP_ROWS = 100_000
COLUMNS = {
    "id": "BIGINT",
    "customer": "BIGINT",
    "quantity": "INT",
    "paid": "BOOLEAN",
    "price": "DECIMAL(10, 2)",
    "weight": "DOUBLE",
    "status": "STRING",
    "city": "STRING",
    "note": "STRING",
    "ordered": "TIMESTAMP(3)",
    "shipped": "TIMESTAMP(3)",
    "day": "DATE",
}


@dataclass(frozen=True)
class Orders:
    """A kind of table: the types of its key columns, and the key of the order with a number from 0."""

    key_columns: Mapping[str, str]
    key: Callable[[int], tuple[Any, ...]]

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The type of each column by its name."""
        return {**COLUMNS, **self.key_columns}

    def schema(self, options: Mapping[str, str] | None = None) -> TableSchema:
        """The schema of ``deduplicate`` with these columns."""
        fields = [{"name": name, "type": kind} for name, kind in self.columns.items()]
        return TableSchema.from_json({"fields": fields, "primaryKeys": [*self.key_columns], "options": options or {}})

    def keys(self, rows: int) -> pa.Table:
        """The keys of the first orders."""
        values = zip(*map(self.key, range(rows)), strict=True)
        return pa.table(dict(zip(self.key_columns, map(pa.array, values), strict=True)))


BIGINT = Orders({"id": "BIGINT"}, lambda number: (number,))
STRING = Orders({"id": "STRING"}, lambda number: (f"order-{number:09d}",))
COMPOSITE = Orders({"city": "STRING", "id": "BIGINT"}, lambda number: (f"city {number % 1000}", number))


def write_run(warehouse: Warehouse, table_id: str, run_id: str, orders: Orders, rows: int, seed: int) -> Run:
    """The first ``rows`` orders as a run of schema 0, in files of a million, their values drawn from ``seed``."""
    folder = Path(warehouse.path(*run_folder(table_id, run_id)))
    folder.mkdir(parents=True)
    schema, keys, draw = orders.schema(), orders.keys(rows), np.random.default_rng(seed)
    tokens = tokens_of(schema, keys)
    order = np.argsort(tokens, kind="stable")
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        places = order[start : start + FILE_ROWS]
        state = _state_rows(schema, keys.take(pa.array(places)), tokens[places], draw)
        pq.write_table(state, folder / f"part-{number}.parquet", row_group_size=GROUP_ROWS)
    return read_run(warehouse, table_id, run_id, 0)


def _state_rows(
    schema: TableSchema, keys: pa.Table, tokens: npt.NDArray[np.int64], draw: np.random.Generator
) -> pa.Table:
    """The state rows of ``deduplicate`` of ``keys``, which are in the order of their tokens."""
    values = _drawn(len(keys), draw) | {name: keys[name] for name in keys.column_names}
    columns = {TOKEN_COLUMN: pa.array(tokens)}
    for column in schema.columns:
        field = arrow_field(column)
        array = values[field.name]
        columns[field.name] = (array if isinstance(array, pa.ChunkedArray) else pa.array(array)).cast(field.type)
    columns["_kf_live"] = pa.array(np.ones(len(keys), dtype=bool))
    return pa.table(columns)


def _drawn(rows: int, draw: np.random.Generator) -> dict[str, Any]:
    """A value for each row in every column that may be no key."""
    words = np.array([f"word {number} of many" for number in range(1000)])
    moments = draw.integers(1_600_000_000_000, 1_700_000_000_000, (2, rows)) * 1000
    return {
        "customer": draw.integers(0, 10**9, rows),
        "quantity": draw.integers(0, 100, rows).astype(np.int32),
        "paid": draw.random(rows) > 0.5,
        "price": pa.array(draw.integers(0, 10**7, rows)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 2)),
        "weight": np.round(draw.random(rows) * 1000, 3),
        "status": words[draw.integers(0, 5, rows)],
        "city": words[draw.integers(0, 1000, rows)],
        "note": np.char.add(words[draw.integers(0, 1000, rows)], " and what was noted with it"),
        "ordered": pa.array(moments[0]).view(pa.timestamp("us")),
        "shipped": pa.array(moments[1]).view(pa.timestamp("us")),
        "day": pa.array(draw.integers(18_000, 20_000, rows).astype(np.int32)).view(pa.date32()),
    }
