"""What a partial update means, as SQL for systems without partial updates, and how their answers are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bench.wide_table import COLUMNS, GROUPS, KEY, PLAIN, SUM

SAMPLED = 500  # one key in so many is compared
FIELD_OF: Mapping[str, str] = {
    column: field for field, protected in GROUPS.items() for column in (field, *protected) if column != SUM
}
"""Column to the sequence field that orders it; the sum is ordered by nothing."""
SUM_FIELD = next(field for field, protected in GROUPS.items() if SUM in protected)
PARTS: Mapping[str, tuple[str, ...]] = {"plain": PLAIN, "groups": tuple(FIELD_OF), "sum": (SUM,)}
VALUES = tuple(name for name in COLUMNS if name != KEY)


def updated(column: str, old: str = "t", new: str = "s") -> str:
    """SQL: the value after record ``new`` meets row ``old``. Null never overwrites, save within a winning group."""
    if column == SUM:
        counted = f"{new}.{SUM} IS NOT NULL AND {new}.{SUM_FIELD} IS NOT NULL"
        return f"CASE WHEN {counted} THEN coalesce({old}.{SUM}, 0) + {new}.{SUM} ELSE {old}.{SUM} END"
    if column in FIELD_OF:
        field = FIELD_OF[column]
        wins = f"{new}.{field} IS NOT NULL AND ({old}.{field} IS NULL OR {new}.{field} >= {old}.{field})"
        return f"CASE WHEN {wins} THEN {new}.{column} ELSE {old}.{column} END"
    return f"coalesce({new}.{column}, {old}.{column})"


def inserted(column: str, new: str = "s") -> str:
    """SQL: the value of a first record; a group counts only with its sequence field."""
    field = SUM_FIELD if column == SUM else FIELD_OF.get(column)
    if field is None or field == column:
        return f"{new}.{column}"
    return f"CASE WHEN {new}.{field} IS NOT NULL THEN {new}.{column} END"


def digests(rows: pa.Table) -> dict[str, str]:
    """For each of ``PARTS`` a digest of the sampled rows: equal digests, equal values."""
    keys = rows[KEY].cast(pa.int64())
    hashed = pc.bit_wise_and(pc.multiply(pc.bit_wise_and(keys, 0xFFFFFFF), 40503), (1 << 40) - 1)
    places = pc.indices_nonzero(pc.equal(pc.subtract(hashed, pc.multiply(pc.divide(hashed, SAMPLED), SAMPLED)), 0))
    sample = pa.table({name: rows[name].take(places) for name in COLUMNS}).sort_by(KEY)
    return {part: _digest(sample, (KEY, *columns)) for part, columns in PARTS.items()}


def _digest(sample: pa.Table, names: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(repr(_plain_values(sample[name], COLUMNS[name])).encode())
    return digest.hexdigest()[:16]


def _plain_values(values: pa.ChunkedArray, data_type: str) -> list[object]:
    """Values as every system gives them: times in microseconds, booleans as numbers."""
    if data_type.startswith("TIMESTAMP"):
        if not pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us"))
        return list(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_pylist())
    if data_type == "BOOLEAN":
        return [None if value is None else bool(value) for value in values.to_pylist()]
    return list(values.cast(pa.string()).to_pylist() if data_type == "STRING" else values.to_pylist())
