"""Values at the edges of every type, and what only looks like one."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind

# What is sent to columns of every type: their edges, their spellings, and what only looks like one of their values.
ODD: Sequence[Any] = (
    *(True, False, 0, -1, 127, 128, -128, -129, 32768, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 10**20),
    *map(Decimal, ("0.5", "1.0", "-0.0", "1E+2", "1e400", "1.005", "99999999.99", "123456789.99", "1e-9", "3.5e38")),
    *("", "x", "5", "-5", "+5", "5.0", "1e2", "1e400", ".5", "5.", " 5", "5 ", "٣", "NaN", "nan", "Infinity"),
    *("inf", "-0"),
    *("127", "128", "-128", "-129", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "0x10"),
    *("1.23", "1.234", "99999999.99", "100000000", "-99999999.99", "0.10", "1_000", "9" * 39, "9" * 1001),
    *("true", "True", "FALSE", "1", "t", "null", "+I", "-D", "abc", "abcd"),
    *("ääää", "日本語", "😀😀😀", "a\nb", 'a"b', "a,b", "\r"),
    *("2024-02-30", "2024-02-29", "0000-01-01", "0001-01-01", "9999-12-31", "2024-2-9", "20240229", "10000-01-01"),
    *("2024-02-29T10:00:00", "2024-02-29 10:00:00", "2024-02-29 10:00", "2024-02-29_10:00:00", "2024-02-29t10:00:00"),
    *("2024-02-29 10:00:00.123", "2024-02-29 10:00:00.1230", "2024-02-29 10:00:00.1234", "2024-02-29 10:00:00.123456"),
    *("2024-02-29 10:00:00.1234567", "2024-02-29T24:00:00", "2024-02-29T10:00:60", "2024-02-29T10:60:00"),
    *("2024-02-29T10:00:00Z", "2024-02-29T10:00:00.5Z", "2024-02-29T10:00:00+01:00", "2024-02-29T10:00:00+0100"),
    *("2024-02-29T10:00:00+01", "0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00-01:00", "0000-12-31T23:59:59Z"),
    *("9999-12-31T23:59:59-01:00", "2024-02-29T10:00:00-25:00", "0000-12-31T23:00:00", "1969-12-31T23:59:59.999"),
    *("10:00:00", "10:00:00.5", "10:00:00.123", "10:00:00.1234", "24:00:00", "23:59:59.999", "10:00", "-1:00:00"),
    *("YQ==", "YQ=", "YWJj", "YWJjZA==", "a" * 300),
    *([], {}, [1], [1, "x"], {"a": 1}, [None]),
)
ODD_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 0)"),
    *("DECIMAL(2, 2)", "CHAR(3)", "VARCHAR(3)", "STRING", "BINARY(3)", "BYTES", "DATE", "TIME(0)"),
    *("TIME(3)", "TIME(9)"),
    *("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "ARRAY<INT>"),
    *("TIMESTAMP(0) WITH LOCAL TIME ZONE", "MAP<STRING, INT>", "ROW<a INT>", "INT NOT NULL", "STRING NOT NULL"),
)

NUMBERS = (0, 1, -1, 127, 128, -128, -129, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**62)
MOMENTS = (0, 1, -1, 999, 1000, 1_000_000, 1_001_000, 123_456_789, 1_000_000_000, -1_000_000_000, 2**62)


def edges(of: DataType) -> list[pa.Array]:
    zone = "UTC" if of.kind is Kind.TIMESTAMP_LTZ else None
    bounds = (-62_135_596_800_000_000, -62_135_596_800_000_001, 253_402_300_799_999_999, 253_402_300_800_000_000)
    us = pa.array([0, 1, 999, 1000, 1_000_000, *bounds])
    texts = pa.array(["", "abc", "abcd", "ääää", "日本語", "5", "9" * 38])
    decimals = [Decimal(n) for n in ("0.00", "1.50", "-1.50", "99999999.99", "100000000.00", "12345.67")]
    wide_decimals = (pa.decimal128(20, 2), pa.decimal256(60, 5))
    floats = pa.array([0.5, -0.0, 1e10, float("nan"), float("-inf")], pa.float32())
    days = pa.array([0, -719162, -719163, 2932896, 2932897], pa.int32())
    millis, micros = pa.array([0, 1, 86_399_999], pa.int32()), pa.array([1, 1000, 5_000_000])
    stamps = [us.view(pa.timestamp("us", zone)), pa.array(MOMENTS).view(pa.timestamp("ns", zone))]
    found: dict[Family, list[pa.Array]] = {
        Family.BOOLEAN: [pa.array([True, False])],
        Family.INTEGER: [pa.array(NUMBERS), pa.array([0, 200], pa.uint8()), pa.array([2**63], pa.uint64())],
        Family.FLOATING: [floats, pa.array([-5], pa.int8())],
        Family.DECIMAL: [pa.array(NUMBERS), *(pa.array(decimals, wide) for wide in wide_decimals)],
        Family.TEXT: [texts, texts.cast(pa.large_string()), texts.cast(pa.string_view()), texts.dictionary_encode()],
        Family.BINARY: [pa.array([b"", b"abc", b"abcd"]), *(pa.array([b"abcd"[:n]], pa.binary(n)) for n in (3, 4))],
        Family.DATE: [days.view(pa.date32())],
        Family.TIME: [millis.view(pa.time32("ms")), micros.view(pa.time64("us"))],
        Family.TIMESTAMP: [*stamps, pa.array([0, 1, 999]).view(pa.timestamp("ms", zone))],
    }
    return found[of.family]
