"""The table that the benchmarks fold: 20 columns, two sequence groups, a sum; its rows, and batches of partial updates.

Everything follows from numbers, so every process that asks for a batch gets the same records. Needs only NumPy and
PyArrow: the processes that run other systems have nothing else of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa

KEY = "id"
COLUMNS: Mapping[str, str] = {
    KEY: "BIGINT NOT NULL",
    "a_at": "TIMESTAMP(6)",
    "a1": "INT",
    "a2": "DOUBLE",
    "a3": "STRING",
    "a4": "STRING",
    "b_at": "BIGINT",
    "b1": "BIGINT",
    "b2": "DOUBLE",
    "b3": "STRING",
    "total": "BIGINT",
    "p1": "INT",
    "p2": "INT",
    "p3": "BIGINT",
    "p4": "DOUBLE",
    "p5": "DOUBLE",
    "p6": "STRING",
    "p7": "STRING",
    "p8": "TIMESTAMP(6)",
    "p9": "BOOLEAN",
}
GROUPS: Mapping[str, tuple[str, ...]] = {"a_at": ("a1", "a2", "a3", "a4"), "b_at": ("b1", "b2", "b3", "total")}
"""Sequence field to the columns it protects; ``total`` is a sum, so its group only says which records count."""
SUM = "total"
PLAIN = tuple(name for name in COLUMNS if name.startswith("p"))
OPTIONS: Mapping[str, str] = {
    "merge-engine": "partial-update",
    **{f"fields.{field}.sequence-group": ",".join(protected) for field, protected in GROUPS.items()},
    f"fields.{SUM}.aggregate-function": "sum",
}
NULL_SHARE = 0.6
BATCH_RECORDS = 100_000

_NEW_KEYS = 1 << 40
_SPREAD = 0x9E37_79B9_7F4B  # odd: multiplying by it permutes the numbers below a power of two
_FIRST_MOMENT = int(datetime(2024, 1, 1).timestamp()) * 1_000_000  # noqa: DTZ001  # any fixed number would do
_MOMENTS = 1 << 40  # microseconds: about 13 days
_WORDS = 50_000


def schema_json(options: Mapping[str, str] | None = None) -> dict[str, object]:
    """The table's schema as it is posted; ``options`` are added to ``OPTIONS``."""
    fields = [{"name": name, "type": data_type} for name, data_type in COLUMNS.items()]
    return {"fields": fields, "primaryKeys": [KEY], "options": {**OPTIONS, **(options or {})}}


def base_records(rows: int, chunk_rows: int = 1_000_000) -> Iterator[pa.Table]:
    """``rows`` complete records with the even keys 0, 2, 4, …, in tables of at most ``chunk_rows``."""
    for chunk, first in enumerate(range(0, rows, chunk_rows)):
        count = min(chunk_rows, rows - first)
        rng = np.random.default_rng((1, chunk))
        yield _table(rng, 2 * np.arange(first, first + count, dtype=np.int64), null_share=0.0, age=0)


def batch_records(number: int, rows: int, records: int = BATCH_RECORDS) -> pa.Table:
    """Batch ``number`` (from 1) for a table that began with ``rows`` rows: no key twice, in no order.

    Half of the keys, drawn uniformly, are keys of the base; the others are in no other batch. ``NULL_SHARE`` of the
    values of every other column are null, each by itself.
    """
    rng = np.random.default_rng((2, number, rows))
    known = records - records // 2
    old = 2 * rng.choice(rows, known, replace=known > rows).astype(np.int64)
    numbered = np.arange(records // 2, dtype=np.int64) + (number - 1) * records
    new = 2 * (numbered * _SPREAD % _NEW_KEYS) + 2 * _NEW_KEYS + 1
    keys = np.concatenate([old, new])
    rng.shuffle(keys)
    return _table(rng, keys, null_share=NULL_SHARE, age=number)


def _table(rng: np.random.Generator, keys: np.ndarray, *, null_share: float, age: int) -> pa.Table:
    arrays = {
        name: _column(rng, data_type, len(keys), null_share, age) for name, data_type in COLUMNS.items() if name != KEY
    }
    return pa.table({KEY: pa.array(keys), **arrays})


def _column(rng: np.random.Generator, data_type: str, count: int, null_share: float, age: int) -> pa.Array:
    nulls = rng.random(count) < null_share if null_share else None
    match data_type.partition("(")[0]:
        case "INT":
            return pa.array(rng.integers(0, 100_000, count, dtype=np.int32), mask=nulls)
        case "BIGINT":
            return pa.array(rng.integers(0, 1 << 40, count), mask=nulls)
        case "DOUBLE":
            return pa.array(rng.random(count).round(4), mask=nulls)
        case "BOOLEAN":
            return pa.array(rng.random(count) < 0.5, mask=nulls)
        case "TIMESTAMP":
            # Batches overlap in time, so that some records come late.
            moments = _FIRST_MOMENT + age * (_MOMENTS >> 6) + rng.integers(0, _MOMENTS, count)
            return pa.array(moments, pa.int64(), mask=nulls).cast(pa.timestamp("us"))
        case _:
            places = pa.array(rng.integers(0, _WORDS, count, dtype=np.int32), mask=nulls)
            return _WORD_LIST.take(places)


_WORD_LIST = pa.array([f"{word * _SPREAD % (1 << 48):012x}" for word in range(_WORDS)])
