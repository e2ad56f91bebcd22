"""Scalar values are read strictly, from JSON and from text, and written so that they are read back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.types.datatype import ENTRIES
from app.core.types.kinds import Kind
from app.core.types.numbers import as_float32
from app.core.types.parser import parse_type
from app.core.types.values import ValueFault, value_text

D = Decimal
SCALARS = [kind for kind in Kind if not ENTRIES[kind].inside]
NINES = "9" * 38


def decode(sql: str, raw: Any) -> Any:
    return parse_type(sql).decoder(raw)


def fault_of(sql: str, raw: Any) -> ValueFault:
    with pytest.raises(ValueFault) as caught:
        decode(sql, raw)
    assert caught.value.fix
    assert len(str(caught.value)) < 300
    return caught.value


# (type, JSON value with Decimal for a number with a fraction, value)
LEGAL = [
    ("BOOLEAN", True, True),
    ("BOOLEAN", False, False),
    *[(kind, end, end) for kind, bits in (("TINYINT", 7), ("SMALLINT", 15), ("INT", 31)) for end in (-(2**bits), 0)],
    *[(kind, 2**bits - 1, 2**bits - 1) for kind, bits in (("TINYINT", 7), ("SMALLINT", 15), ("INT", 31))],
    ("BIGINT", -(2**63), -(2**63)),
    ("BIGINT", 2**63 - 1, 2**63 - 1),
    ("BIGINT", "9223372036854775807", 2**63 - 1),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("BIGINT", "+007", 7),
    *[
        (kind, raw, 120)
        for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")
        for raw in ("120", "120.0", "1.2e2", "+120.", "1200e-1", D("120.0"), D("1.2E+2"), 120.0)
    ],
    ("BIGINT", D("9223372036854775807.000"), 2**63 - 1),
    ("INT", D("0E+999999"), 0),
    ("INT", D("-0.0"), 0),
    ("FLOAT", D("0.1"), 0.10000000149011612),
    ("FLOAT", 16_777_217, 16_777_216.0),
    ("FLOAT", 3.4028234663852886e38, 3.4028234663852886e38),
    ("FLOAT", D("1e-400"), 0.0),
    *[(kind, raw, 1000.0) for kind in ("FLOAT", "DOUBLE") for raw in ("1000", "1000.0", "1e3", "+1.E3")],
    *[(kind, text, float(text)) for kind in ("FLOAT", "DOUBLE") for text in ("Infinity", "-Infinity")],
    ("FLOAT", "0.1", 0.10000000149011612),
    ("DOUBLE", D("0.1"), 0.1),
    ("DOUBLE", 1, 1.0),
    ("DOUBLE", D("1.7976931348623157e308"), 1.7976931348623157e308),
    ("DOUBLE", D("5e-324"), 5e-324),
    ("DECIMAL(10, 2)", D("12.5"), D("12.50")),
    ("DECIMAL(10, 2)", 12, D("12.00")),
    ("DECIMAL(10, 2)", "12.50", D("12.50")),
    ("DECIMAL(10, 2)", ".5", D("0.50")),
    ("DECIMAL(10, 2)", "+5.", D("5.00")),
    ("DECIMAL(10, 2)", "1.500", D("1.50")),
    ("DECIMAL(10, 2)", "1E2", D("100.00")),
    ("DECIMAL(10, 2)", "150e-2", D("1.50")),
    ("DECIMAL(10, 2)", D("1.5E+3"), D("1500.00")),
    ("DECIMAL(10, 2)", "0e9999", D("0.00")),
    ("DECIMAL(10, 2)", 0.1, D("0.10")),
    ("DECIMAL(10, 2)", "99999999.99", D("99999999.99")),
    ("DECIMAL(38, 0)", NINES, D(NINES)),
    ("DECIMAL(38, 0)", -int(NINES), D("-" + NINES)),
    ("DECIMAL(38, 38)", D("0." + NINES), D("0." + NINES)),
    ("DECIMAL(38, 10)", "1234567890123456789012345678.0123456789", D("1234567890123456789012345678.0123456789")),
    ("CHAR(3)", "äöü", "äöü"),
    ("CHAR(3)", "a", "a"),
    ("VARCHAR(3)", "𝄞𝄞𝄞", "𝄞𝄞𝄞"),
    ("STRING", "", ""),
    ("STRING", "\0\n ", "\0\n "),
    ("BINARY(3)", "", b""),
    ("BINARY(3)", "////", b"\xff\xff\xff"),
    ("VARBINARY(3)", "YQ==", b"a"),
    ("BYTES", "AA==", b"\0"),
    ("DATE", "0001-01-01", date(1, 1, 1)),
    ("DATE", "2024-02-29", date(2024, 2, 29)),
    ("DATE", "9999-12-31", date(9999, 12, 31)),
    ("TIME", "00:00:00", 0),
    ("TIME", "23:59:59", 86_399_000),
    ("TIME", "10:00:00.000", 36_000_000),
    ("TIME(3)", "10:00:00.12", 36_000_120),
    ("TIME(9)", "10:00:00.123", 36_000_123),
    ("TIMESTAMP(6)", "2024-01-31T10:00:00.123456", datetime(2024, 1, 31, 10, 0, 0, 123_456)),
    ("TIMESTAMP(6)", "2024-01-31 10:00:00", datetime(2024, 1, 31, 10)),
    ("TIMESTAMP(3)", "1969-12-31T23:59:59.999000", datetime(1969, 12, 31, 23, 59, 59, 999_000)),
    ("TIMESTAMP(0)", "0001-01-01T00:00:00", datetime(1, 1, 1)),
    ("TIMESTAMP_LTZ(3)", "2024-01-31T10:00:00.5Z", datetime(2024, 1, 31, 10, 0, 0, 500_000, UTC)),
    ("TIMESTAMP_LTZ(6)", "2024-01-31T10:00:00+05:30", datetime(2024, 1, 31, 4, 30, tzinfo=UTC)),
    ("TIMESTAMP_LTZ(0)", "2024-01-31T23:00:00-02:00", datetime(2024, 2, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("sql", "raw", "value"), LEGAL)
def test_a_legal_value_is_read_as_what_it_says(sql: str, raw: Any, value: Any) -> None:
    read = decode(sql, raw)
    assert read == value
    assert type(read) is type(value)
    assert str(read) == str(value), "the scale of a DECIMAL and the zone of a timestamp are part of the value"


def test_the_list_above_holds_every_scalar_kind() -> None:
    assert {parse_type(sql).kind for sql, _, _ in LEGAL} == set(SCALARS)


ILLEGAL = [
    *[("BOOLEAN", raw, "wrong_type") for raw in (0, 1, "true", D("1.0"), [], {})],
    *[
        (kind, raw, "wrong_type")
        for kind in ("TINYINT", "SMALLINT", "INT")
        for raw in (True, "1.5", "", D("1.5"), D("-1e-999"), 1.5)
    ],
    *[
        (kind, end, "out_of_range")
        for kind, bits in (("TINYINT", 7), ("SMALLINT", 15))
        for end in (2**bits, ~(2**bits))
    ],
    *[(kind, end, "out_of_range") for kind, bits in (("INT", 31), ("BIGINT", 63)) for end in (2**bits, ~(2**bits))],
    *[
        ("BIGINT", raw, "wrong_type")
        for raw in (True, D("1.1"), "1.1", "1e-3", " 1", "1_0", "١", "", "0x1", "-", "NaN", "Infinity", "9" * 5000)
    ],
    *[("BIGINT", raw, "out_of_range") for raw in (D("1e999999999"), "1e9999", "-1e19", 1e19, float("nan"))],
    ("BIGINT", "9223372036854775808", "out_of_range"),
    *[(kind, raw, "wrong_type") for kind in ("FLOAT", "DOUBLE") for raw in (True, "1.0x", None.__class__, {})],
    *[(kind, raw, "wrong_type") for kind in ("FLOAT", "DOUBLE") for raw in ("nan", "NAN", "inf", "+Infinity", "-NaN")],
    *[(kind, "1e9999", "out_of_range") for kind in ("FLOAT", "DOUBLE")],
    *[(kind, raw, "out_of_range") for kind in ("FLOAT", "DOUBLE") for raw in (D("1e400"), 10**400, D("-1e999999999"))],
    *[(kind, float(raw), "out_of_range") for kind in ("FLOAT", "DOUBLE") for raw in ("nan", "inf", "-inf")],
    ("FLOAT", D("3.5e38"), "out_of_range"),
    ("FLOAT", 3.4028235677973366e38, "out_of_range"),
    *[
        ("DECIMAL(10, 2)", raw, "wrong_type")
        for raw in (True, "", ".", "1,5", "0x1", "NaN", "Infinity", "١", "1e99999", " 1", "1_0", [], {})
    ],
    *[
        ("DECIMAL(10, 2)", raw, "too_many_digits")
        for raw in ("1.234", D("0.001"), 12345.675, "99999999.995", "1e-9999")
    ],
    *[
        ("DECIMAL(10, 2)", raw, "out_of_range")
        for raw in ("100000000", 10**8, D("1e9"), D("-1e+999999"), 1e22, "1e9999")
    ],
    *[("DECIMAL(10, 2)", raw, "out_of_range") for raw in (D("NaN"), D("Infinity"), float("nan"))],
    ("DECIMAL(38, 0)", "1" + "0" * 38, "out_of_range"),
    ("DECIMAL(38, 38)", "1", "out_of_range"),
    ("DECIMAL(38, 38)", "0." + NINES + "9", "too_many_digits"),
    *[(kind, raw, "wrong_type") for kind in ("CHAR(3)", "VARCHAR(3)", "STRING") for raw in (1, True, [], b"a", D(1))],
    *[(kind, "abcd", "too_long") for kind in ("CHAR(3)", "VARCHAR(3)")],
    *[("STRING", raw, "not_unicode") for raw in ("\ud800", "a\udfff", "\udc00\ud800")],
    *[(kind, raw, "wrong_type") for kind in ("BINARY(3)", "BYTES") for raw in (1, True, [], [1, 2])],
    *[("BYTES", raw, "not_base64") for raw in ("YQ", "YQ=", "Y Q==", "YQ==\n", "YQ==YQ==", "_-8=", "ä", "*", "\ud800")],
    *[(kind, "YWJjZA==", "too_long") for kind in ("BINARY(3)", "VARBINARY(3)")],
    *[
        ("DATE", raw, "bad_date")
        for raw in (
            *("2023-02-29", "2024-2-3", "0000-01-01", "10000-01-01", "2024-01-01\n", "2024-W01-1", "20240101", ""),
            *("2024-01-01T00:00:00", "２０２４-01-01", 19_000, True, []),
        )
    ],
    *[
        ("TIME(3)", raw, "bad_time")
        for raw in ("24:00:00", "23:59:60", "1:00:00", "10:00", "10:00:00Z", "", 36_000_000)
    ],
    ("TIME", "10:00:00.5", "too_many_digits"),
    ("TIME(3)", "10:00:00.1234", "too_many_digits"),
    ("TIME(9)", "10:00:00.1234", "too_many_digits"),
    *[
        ("TIMESTAMP(3)", raw, "bad_timestamp")
        for raw in (
            *("2024-01-31T10:00:00Z", "2024-01-31T10:00:00+01:00", "2024-02-30T10:00:00", "2024-01-31T24:00:00", ""),
            *("2024-01-31", "2024-01-31T10:00", "2024-01-31T10:00:00.", "0000-01-01T00:00:00", 1_706_695_200, True),
        )
    ],
    ("TIMESTAMP(3)", "2024-01-31T10:00:00.1234", "too_many_digits"),
    ("TIMESTAMP(6)", "2024-01-31T10:00:00.1234567", "too_many_digits"),
    *[
        ("TIMESTAMP_LTZ(3)", raw, "bad_timestamp")
        for raw in (
            *("2024-01-31T10:00:00", "2024-01-31T10:00:00+24:00", "2024-01-31T10:00:00+01", "2024-01-31T10:00:00z"),
            *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", 0, None.__class__),
        )
    ],
]


@pytest.mark.parametrize(("sql", "raw", "code"), ILLEGAL)
def test_an_illegal_value_is_refused_with_its_reason_and_a_fix(sql: str, raw: Any, code: str) -> None:
    assert fault_of(sql, raw).code == code


def test_the_list_above_refuses_something_for_every_scalar_kind() -> None:
    assert {parse_type(sql).kind for sql, _, _ in ILLEGAL} == set(SCALARS)


@pytest.mark.parametrize("kind", SCALARS)
def test_a_json_array_or_object_is_no_scalar(kind: str) -> None:
    for raw in ([], {}, [1], {"a": 1}):
        assert fault_of(kind, raw).path == ()


@pytest.mark.parametrize("kind", ["TINYINT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_of_thousands_of_digits_is_out_of_range_like_any_other(kind: str, sign: int) -> None:
    assert fault_of(kind, sign * 10**5000).code == "out_of_range"


def test_a_fault_shows_the_value_and_the_limits() -> None:
    fault = fault_of("TINYINT", 300)
    assert (str(fault), fault.fix) == ("300 is out of range for TINYINT", "send -128 to 127")
    assert str(fault_of("BOOLEAN", "x" * 1000)).startswith("'" + "x" * 56 + "...")


@pytest.mark.parametrize("kind", Kind)
def test_null_is_null_in_any_nullable_column(kind: str) -> None:
    nested = {"ARRAY": "ARRAY<INT>", "MULTISET": "MULTISET<INT>", "MAP": "MAP<INT, INT>", "ROW": "ROW<a INT NOT NULL>"}
    assert decode(nested.get(kind, kind), None) is None
    assert parse_type(nested.get(kind, kind)).encoder(None) is None


@pytest.mark.parametrize("kind", Kind)
def test_null_is_refused_in_any_not_null_column(kind: str) -> None:
    nested = {"ARRAY": "ARRAY<INT>", "MULTISET": "MULTISET<INT>", "MAP": "MAP<INT, INT>", "ROW": "ROW<a INT>"}
    assert fault_of(f"{nested.get(kind, kind)} NOT NULL", None).code == "null_in_not_null"


# Each: a type, a value, and the value as JSON.
WRITTEN = [
    ("BOOLEAN", True, True),
    ("BIGINT", 2**63 - 1, 2**63 - 1),
    ("DOUBLE", 0.1, 0.1),
    ("DOUBLE", float("nan"), "NaN"),
    ("DOUBLE", float("inf"), "Infinity"),
    ("FLOAT", float("-inf"), "-Infinity"),
    ("FLOAT", float("nan"), "NaN"),
    ("FLOAT", 0.10000000149011612, 0.1),
    ("FLOAT", -16_777_216.0, -16_777_216.0),
    ("FLOAT", 3.4028234663852886e38, 3.4028235e38),
    ("FLOAT", 1.401298464324817e-45, 1e-45),
    ("FLOAT", 0.30000001192092896, 0.3),
    ("FLOAT", 1.0000001192092896, 1.0000001),
    ("FLOAT", -0.0, -0.0),
    ("ARRAY<FLOAT>", [0.10000000149011612], [0.1]),
    ("MAP<FLOAT, FLOAT>", [(0.10000000149011612, float("nan"))], {"0.1": "NaN"}),
    ("DECIMAL(10, 2)", D("12.50"), "12.50"),
    ("DECIMAL(38, 0)", D(NINES), NINES),
    ("DECIMAL(38, 38)", D("1E-38"), "0." + "0" * 37 + "1"),
    ("STRING", "ä", "ä"),
    ("BYTES", b"\xff\xfe", "//4="),
    ("BYTES", b"", ""),
    ("DATE", date(1, 1, 1), "0001-01-01"),
    ("TIME", 0, "00:00:00"),
    ("TIME(3)", 86_399_999, "23:59:59.999"),
    ("TIME(3)", 36_000_120, "10:00:00.12"),
    ("TIME(3)", 36_000_005, "10:00:00.005"),
    ("TIMESTAMP(6)", datetime(1, 1, 1), "0001-01-01T00:00:00"),
    ("TIMESTAMP(6)", datetime(2024, 1, 31, 10, 0, 0, 120), "2024-01-31T10:00:00.00012"),
    ("TIMESTAMP_LTZ(3)", datetime(2024, 1, 31, 10, 0, 0, 500_000, UTC), "2024-01-31T10:00:00.5Z"),
    ("TIMESTAMP_LTZ(3)", datetime(2024, 1, 31, 10, 0, 10, tzinfo=UTC), "2024-01-31T10:00:10Z"),
]


@pytest.mark.parametrize(("sql", "value", "written"), WRITTEN)
def test_a_value_is_written_in_the_form_that_is_documented(sql: str, value: Any, written: Any) -> None:
    answer = parse_type(sql).encoder(value)
    assert (answer, type(answer)) == (written, type(written))


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_nan_is_read_from_its_name_only(kind: str) -> None:
    assert all(math.isnan(read) for read in (decode(kind, "NaN"), parse_type(kind).text_decoder("NaN")))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_written_short_and_read_back_as_it_was(value: float) -> None:
    written = parse_type("FLOAT").encoder(value)
    assert decode("FLOAT", written) == decode("FLOAT", str(written)) == value
    assert all(as_float32(float(f"{value:.{digits}g}")) != value for digits in range(1, _digits(written)))


def _digits(value: float) -> int:
    return len(D(repr(value)).normalize().as_tuple().digits)


def test_decimals_know_one_zero() -> None:
    assert [str(decode("DECIMAL(5, 2)", raw)) for raw in (0, "-0", D("-0.00"), -0.0)] == ["0.00"] * 4


def test_floats_keep_their_negative_zero() -> None:
    assert [str(decode(kind, D("-0.0"))) for kind in ("FLOAT", "DOUBLE")] == ["-0.0", "-0.0"]


@pytest.mark.parametrize(
    ("sql", "text", "value"),
    [
        ("BOOLEAN", "true", True),
        ("BOOLEAN", "FALSE", False),
        ("INT", "-5", -5),
        ("INT", "5.0", 5),
        ("DOUBLE", "-Infinity", float("-inf")),
        ("TINYINT", "+5", 5),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("DOUBLE", "1e5", 100_000.0),
        ("DOUBLE", "1" * 50, float("1" * 50)),
        ("FLOAT", ".5", 0.5),
        ("DECIMAL(3, 1)", "1.5", D("1.5")),
        ("STRING", "", ""),
        ("CHAR(3)", "a/b", "a/b"),
        ("BYTES", "YQ==", b"a"),
        ("DATE", "2024-01-31", date(2024, 1, 31)),
        ("TIME", "10:00:00", 36_000_000),
        ("TIMESTAMP_LTZ(0)", "2024-01-31T10:00:00Z", datetime(2024, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_text_of_a_url_or_a_default_is_read_as_its_type(sql: str, text: str, value: Any) -> None:
    assert parse_type(sql).text_decoder(text) == value


@pytest.mark.parametrize(
    ("sql", "text", "code"),
    [
        ("BOOLEAN", "1", "wrong_type"),
        ("BOOLEAN", "", "wrong_type"),
        ("INT", "5.5", "wrong_type"),
        ("INT", "five", "wrong_type"),
        ("INT", "", "wrong_type"),
        ("INT", "2147483648", "out_of_range"),
        ("TINYINT", "9" * 5000, "wrong_type"),
        ("DOUBLE", "nan", "wrong_type"),
        ("DOUBLE", "1e9999", "out_of_range"),
        ("DECIMAL(3, 1)", "1.55", "too_many_digits"),
        ("CHAR(3)", "abcd", "too_long"),
        ("STRING", "\ud800", "not_unicode"),
        ("DATE", "today", "bad_date"),
        ("ARRAY<INT>", "[1]", "wrong_type"),
    ],
)
def test_text_that_is_no_value_of_its_type_is_refused(sql: str, text: str, code: str) -> None:
    with pytest.raises(ValueFault) as caught:
        parse_type(sql).text_decoder(text)
    assert caught.value.code == code


def test_values_stand_in_a_url_as_they_stand_in_json() -> None:
    assert [value_text(v) for v in (True, False, 5, 0.5, "a", "12.50")] == ["true", "false", "5", "0.5", "a", "12.50"]
