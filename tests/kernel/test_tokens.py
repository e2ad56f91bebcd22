"""The token of a key is Spark's ``xxhash64`` of it, for every key type; Spark computed those of the golden file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.keys import token_of
from app.core.table.records import TOKEN_COLUMN
from app.core.table.schema import TableSchema
from app.core.types.datatype import ENTRIES
from app.core.types.kinds import Kind
from app.core.types.parser import parse_type
from tests.builders import schema_of
from tests.oracle import Change, TableCase
from tests.site import Site

RANDOM = Random(20)
LENGTHS = range(71)  # xxhash64 works by blocks of 32, 8, 4 and 1 bytes


def _integers(bits: int) -> list[int]:
    half = 1 << bits - 1
    return [-half, -half + 1, -1, 0, 1, half - 1, *(RANDOM.randrange(-half, half) for _ in range(20))]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    """Ends, zero, and powers of two around every byte boundary, where the shortest bytes change their number."""
    most = 10**precision - 1
    powers = [(1 << bits) + nudge for bits in range(7, 128) if bits % 8 in (0, 7) for nudge in (-1, 0, 1)]
    unscaled = [0, 1, -1, most, -most, *powers, *(-power for power in powers)]
    unscaled += [RANDOM.randrange(-most, most) for _ in range(20)]
    kept = [number for number in unscaled if abs(number) <= most]
    return [Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)) for number in kept]


def _timestamps(zone: Any) -> list[datetime]:
    moments = [
        datetime(1, 1, 1),
        datetime(1, 1, 1, 0, 0, 0, 1),
        datetime(1582, 10, 4),
        datetime(1582, 10, 15),
        datetime(1900, 1, 1, 12, 34, 56, 789_012),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1),
        datetime(2024, 3, 31, 2, 30),  # no such time in Berlin
        datetime(2262, 4, 12),  # beyond 64 bits of nanoseconds
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ]
    return [moment.replace(tzinfo=zone) for moment in moments]


TEXTS = ["", "a", "\0", "ä", "€", "𝄞", "a𝄞b", "\uffff", "Ω" * 33, *("x" * length for length in LENGTHS)]
BINARIES = [b"", b"\0", b"\xff", b"\x80\0", *(RANDOM.randbytes(length) for length in LENGTHS)]
DATES = [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.0**-149, 2.0**127, math.inf, -math.inf, math.nan]

DECIMALS = [(1, 0), (5, 2), (9, 9), (10, 0), (18, 0), (18, 18), (19, 0), (20, 10), (28, 28), (38, 0), (38, 38)]

VALUES: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": _integers(8),
    "SMALLINT": _integers(16),
    "INT": _integers(32),
    "BIGINT": _integers(64),
    "FLOAT": FLOATS,
    "DOUBLE": [*FLOATS, 5e-324, 1e308, 0.1, -0.1],
    **{f"DECIMAL({precision}, {scale})": _decimals(precision, scale) for precision, scale in DECIMALS},
    "CHAR(71)": TEXTS,
    "VARCHAR(71)": TEXTS,
    "STRING": TEXTS,
    "BINARY(70)": BINARIES,
    "VARBINARY(70)": BINARIES,
    "BYTES": BINARIES,
    "DATE": DATES,
    "TIME(0)": [0, 1000, 86_399_000],
    "TIME(3)": [0, 1, 86_399_999],
    "TIMESTAMP(0)": [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59), datetime(9999, 12, 31)],
    "TIMESTAMP(6)": _timestamps(None),
    "TIMESTAMP_LTZ(3)": [datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)],
    "TIMESTAMP_LTZ(6)": _timestamps(UTC),
}
ROWS = max(map(len, VALUES.values())) + 1  # so that every column also holds a null
NAMES = {sql: f"c{at}" for at, sql in enumerate(VALUES)}
COMPOSITE = [
    ("INT", "STRING"),
    ("STRING", "INT"),
    ("BYTES", "STRING", "DOUBLE"),
    ("DECIMAL(38, 0)", "DECIMAL(18, 0)", "DATE"),
    ("FLOAT", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "TIME(3)", "BOOLEAN"),
    tuple(VALUES),
]


def keyed_by(types: Sequence[str]) -> TableSchema:
    """A table of all the columns whose nullable key is those of ``types``."""
    columns = tuple((name, sql) for sql, name in NAMES.items())
    return schema_of(TableCase(columns, tuple(NAMES[sql] for sql in types), {"primary-key.nullable": "true"}))


GOLDEN: Mapping[str, list[int]] = json.loads((Path(__file__).parents[1] / "golden" / "tokens.json").read_text())


def padded() -> dict[str, list[Any]]:
    """Columns of all values, each as long as the longest."""
    return {NAMES[sql]: [*found, *[None] * (ROWS - len(found))] for sql, found in VALUES.items()}


def test_the_values_above_are_of_every_type_that_a_key_may_have() -> None:
    assert {parse_type(sql).kind for sql in VALUES} == {kind for kind in Kind if ENTRIES[kind].hashed}


@pytest.mark.parametrize("types", [*((sql,) for sql in VALUES), *COMPOSITE], ids=", ".join)
def test_tokens_are_spark_s_for_every_key_type_alone_and_together(types: Sequence[str]) -> None:
    columns, schema = padded(), keyed_by(types)
    keys = [tuple(columns[NAMES[sql]][row] for sql in types) for row in range(ROWS)]
    assert [token_of(schema, key) for key in keys] == GOLDEN[", ".join(types)]


@pytest.mark.parametrize("types", [("BIGINT", "INT"), ("DECIMAL(38, 0)", "STRING", "TIMESTAMP(6)", "BYTES", "BIGINT")])
def test_tokens_of_random_composite_keys_are_those_that_a_merge_computes(types: Sequence[str], tmp_path: Path) -> None:
    columns = tuple((NAMES[sql], sql) for sql in types)
    for nullable in (True, False):
        options = {"primary-key.nullable": str(nullable).lower()}
        schema = schema_of(TableCase(columns, tuple(name for name, _ in columns), options))
        keys = [
            {NAMES[sql]: RANDOM.choice([*([None] if nullable else []), *VALUES[sql]]) for sql in types}
            for _ in range(300)
        ]
        site = Site(tmp_path / str(nullable), compile_plan(schema))
        site.merge([[Change("+I", key) for key in keys]])
        rows = site.table(site.runs[0]).to_pylist()
        assert {token_of(schema, tuple(key.values())) for key in keys} == {row[TOKEN_COLUMN] for row in rows}
        for row in rows:
            assert token_of(schema, tuple(row[name] for name, _ in columns)) == row[TOKEN_COLUMN]
