"""Nested values are read strictly, faults point into them, and whatever is written is read back."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.types.datatype import DataType
from app.core.types.parser import parse_type
from app.core.types.values import ValueFault, value_text
from tests.core.strategies import SCALAR_TYPES, TYPES, values

DEEP = "ROW<a INT NOT NULL, b ARRAY<MAP<STRING, ROW<c TINYINT>>>>"


def fault_of(sql: str, raw: Any) -> ValueFault:
    with pytest.raises(ValueFault) as caught:
        parse_type(sql).decoder(raw)
    assert caught.value.fix
    return caught.value


@given(TYPES.flatmap(lambda t: st.tuples(st.just(t), values(t))))
def test_a_value_that_was_written_is_read_back(typed: tuple[DataType, Any]) -> None:
    data_type, value = typed
    written = json.dumps(data_type.encoder(value), allow_nan=False)
    for parse_float in (float, Decimal):
        read = data_type.decoder(json.loads(written, parse_float=parse_float))
        assert repr(read) == repr(value), "repr tells -0.0 from 0.0 and 1.0 from 1"


@given(SCALAR_TYPES.map(lambda t: t.with_nullable(False)).flatmap(lambda t: st.tuples(st.just(t), values(t))))
def test_a_scalar_that_was_written_as_text_is_read_back(typed: tuple[DataType, Any]) -> None:
    data_type, value = typed
    assert repr(data_type.text_decoder(value_text(data_type.encoder(value)))) == repr(value)


@given(TYPES, st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_json_is_a_value_or_is_refused(data_type: DataType, raw: Any) -> None:
    try:
        read, fix = data_type.decoder(raw), "none is needed"
    except ValueFault as fault:
        read, fix = None, fault.fix
    assert fix
    if read is not None:
        assert data_type.decoder(data_type.encoder(read)) == read


@pytest.mark.parametrize(
    ("sql", "raw", "value"),
    [
        ("ARRAY<INT>", [], []),
        ("ARRAY<INT>", [1, None], [1, None]),
        ("ARRAY<DECIMAL(3, 1)>", ["1.5", 2], [Decimal("1.5"), Decimal("2.0")]),
        ("ROW<a INT, b STRING>", {"b": "x"}, {"a": None, "b": "x"}),
        ("ROW<a INT, b STRING>", [1, "x"], {"a": 1, "b": "x"}),
        ("ROW<a INT, b STRING>", {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
        ("MAP<INT, STRING>", {"1": "a", "2": None}, [(1, "a"), (2, None)]),
        ("MAP<INT, STRING>", [[1, "a"], [2, None]], [(1, "a"), (2, None)]),
        ("MAP<INT, STRING>", [{"key": 1, "value": "a"}, {"key": 2}], [(1, "a"), (2, None)]),
        ("MAP<STRING, INT>", {}, []),
        ("MAP<BOOLEAN, INT>", {"true": 1, "FALSE": 2}, [(True, 1), (False, 2)]),
        ("MAP<ARRAY<INT>, INT>", [[[1], 2], [[], 3]], [([1], 2), ([], 3)]),
        ("MULTISET<STRING>", {"a": 2}, [("a", 2)]),
        ("MULTISET<INT>", [[1, 2]], [(1, 2)]),
    ],
)
def test_nested_values_are_read_from_each_of_their_forms(sql: str, raw: Any, value: Any) -> None:
    assert parse_type(sql).decoder(raw) == value


@pytest.mark.parametrize(
    ("sql", "value", "written"),
    [
        ("ARRAY<DECIMAL(3, 1)>", [Decimal("1.5"), None], ["1.5", None]),
        ("ROW<a INT, b DATE>", {"a": 1, "b": None}, {"a": 1, "b": None}),
        ("MAP<BOOLEAN, INT>", [(True, 1)], {"true": 1}),
        ("MAP<INT, BYTES>", [(1, b"a")], {"1": "YQ=="}),
        ("MAP<ARRAY<INT>, INT>", [([1], 2)], [[[1], 2]]),
        ("MULTISET<STRING>", [("a", 2)], {"a": 2}),
    ],
)
def test_nested_values_are_written_in_one_form(sql: str, value: Any, written: Any) -> None:
    assert parse_type(sql).encoder(value) == written


@pytest.mark.parametrize(
    ("sql", "raw", "code", "path"),
    [
        ("ARRAY<INT>", {"0": 1}, "wrong_type", ()),
        ("ARRAY<INT>", "1,2", "wrong_type", ()),
        ("ARRAY<INT>", [1, "x"], "wrong_type", ("1",)),
        ("ARRAY<INT NOT NULL>", [1, None], "null_in_not_null", ("1",)),
        ("ARRAY<ARRAY<INT>>", [[1], [2, 2**31]], "out_of_range", ("1", "1")),
        (DEEP, {}, "null_in_not_null", ("a",)),
        (DEEP, {"a": 1, "z": 2}, "unknown_field", ("z",)),
        (DEEP, {"a": 1, "b": {"0": 1}}, "wrong_type", ("b",)),
        (DEEP, {"a": 1, "b": [{}, {"y/~": {"c": 300}}]}, "out_of_range", ("b", "1", "y/~", "c")),
        (DEEP, [1], "wrong_type", ()),
        (DEEP, "x", "wrong_type", ()),
        ("MAP<INT, INT>", {"1": "a"}, "wrong_type", ("1",)),
        ("MAP<INT, INT>", {"1.5": 1}, "wrong_type", ("1.5",)),
        ("MAP<INT, INT>", 5, "wrong_type", ()),
        ("MAP<INT, INT>", [1, 2], "wrong_type", ()),
        ("MAP<INT, INT>", [[1, 2, 3]], "wrong_type", ()),
        ("MAP<INT, INT>", ["ab"], "wrong_type", ()),
        ("MAP<INT, INT>", [{"key": 1, "value": 2, "other": 3}], "wrong_type", ()),
        ("MAP<ARRAY<INT>, INT>", {"[1]": 2}, "wrong_type", ("[1]",)),
        ("MULTISET<STRING>", {"a": None}, "null_in_not_null", ("a",)),
        ("MULTISET<STRING>", {"a": "2x"}, "wrong_type", ("a",)),
    ],
)
def test_a_fault_inside_a_value_says_where_it_is(sql: str, raw: Any, code: str, path: tuple[str, ...]) -> None:
    fault = fault_of(sql, raw)
    assert (fault.code, fault.path) == (code, path)


@pytest.mark.parametrize(
    ("sql", "raw", "path"),
    [
        ("MAP<STRING, INT>", [["a", 1], ["b", "x"]], ("1", "1")),
        ("MAP<STRING, INT>", [["a", 1], [2, 3]], ("1", "0")),
        ("MAP<STRING, INT>", [{"key": "a", "value": "x"}], ("0", "value")),
        ("MAP<STRING, INT>", [{"value": 1}], ("0",)),
        ("MAP<ROW<a INT>, INT>", [[{"a": "x"}, 1]], ("0", "0", "a")),
        ("ROW<a INT, b INT>", [1, "x"], ("1",)),
    ],
)
def test_a_fault_in_a_map_of_pairs_or_a_row_sent_as_a_list_points_to_what_was_sent(
    sql: str, raw: Any, path: tuple[str, ...]
) -> None:
    assert fault_of(sql, raw).path[: len(path)] == path


@pytest.mark.parametrize("key", ["STRING", "INT NOT NULL", "ARRAY<INT>"])
def test_a_map_key_is_never_null_whatever_its_type_says(key: str) -> None:
    assert fault_of(f"MAP<{key}, INT>", [[None, 1]]).code == "null_in_not_null"
    assert fault_of(f"MULTISET<{key}>", [[None, 1]]).code == "null_in_not_null"


@pytest.mark.parametrize(
    ("sql", "raw"),
    [
        ("MAP<INT, INT>", [[1, 2], [1, 3]]),
        ("MAP<INT, INT>", {"1": 2, "01": 3}),
        ("MAP<DECIMAL(5, 2), INT>", {"1.0": 1, "1.00": 2}),
        ("MAP<DOUBLE, INT>", [[1, 1], [Decimal("1.0"), 2]]),
        ("MAP<TIMESTAMP_LTZ(0), INT>", {"2024-01-01T00:00:00Z": 1, "2024-01-01T01:00:00+01:00": 2}),
        ("MAP<ARRAY<INT>, INT>", [[[1], 2], [[1], 3]]),
        ("MAP<ROW<a INT>, INT>", [[{"a": 1}, 2], [[1], 3]]),
        ("MULTISET<STRING>", [["a", 1], ["a", 1]]),
        ("MAP<DOUBLE, INT>", [[Decimal("0.0"), 1], [Decimal("-0.0"), 2]]),  # equal to Spark
    ],
)
def test_a_map_names_a_key_once_however_it_is_spelled(sql: str, raw: Any) -> None:
    assert fault_of(sql, raw).code == "duplicate_key"


def test_keys_of_two_kinds_that_look_alike_are_two_keys() -> None:
    assert parse_type("MAP<STRING, INT>").decoder({"1": 1, "01": 2}) == [("1", 1), ("01", 2)]
