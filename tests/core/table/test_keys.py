"""Keys are read from text and JSON to one form: equal keys have equal tokens, other keys others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ErrorCode, Invalid
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.keys import key_from_json, key_from_text, key_to_json, token_of
from app.core.table.schema import TableSchema
from app.core.types.datatype import ENTRIES, DataType
from app.core.types.values import value_text
from tests.core.strategies import SCALAR_TYPES, values
from tests.core.tables import plan, table

COLUMNS = {"k": "INT", "s": "STRING", "v": "INT"}


def schema(kind: str | DataType) -> TableSchema:
    return table(None, {"k": kind if isinstance(kind, str) else kind.sql})


def _typed_pairs() -> st.SearchStrategy[tuple[DataType, Any, Any]]:
    def pair(data_type: DataType) -> st.SearchStrategy[tuple[DataType, Any, Any]]:
        one = values(data_type)
        return st.tuples(st.just(data_type), one, one) | one.map(lambda value: (data_type, value, value))

    return SCALAR_TYPES.map(lambda t: t.with_nullable(False)).flatmap(pair)


@given(_typed_pairs())
def test_equal_keys_have_equal_tokens_and_other_keys_others(pair: tuple[DataType, Any, Any]) -> None:
    data_type, a, b = pair
    one = schema(data_type)
    assert (token_of(one, (a,)) == token_of(one, (b,))) is (a == b)


@given(SCALAR_TYPES.flatmap(lambda t: st.tuples(st.just(t), values(t.with_nullable(False)))))
def test_a_key_is_the_same_however_it_is_sent(typed: tuple[DataType, Any]) -> None:
    data_type, value = typed
    one = schema(data_type)
    written = data_type.encoder(value)
    raw = json.loads(json.dumps(written), parse_float=Decimal)
    staged = RecordDecoder(plan(None, {"k": data_type.sql})).decode([{"k": raw}]).columns["k"][0]
    keys = [key_from_text(one, [value_text(written)]), key_from_json(one, {"k": raw}, ""), (staged,)]
    assert [repr(key) for key in keys] == [repr(keys[0])] * 3
    assert keys[0] == (value,)
    assert key_to_json(one, keys[0]) == {"k": written}


@pytest.mark.parametrize(
    ("kind", "raws"),
    [
        ("DOUBLE", [0, Decimal("0.0"), Decimal("-0.0"), -0.0]),
        ("FLOAT", [Decimal("0.1"), 0.1, 0.10000000149011612]),
        ("DECIMAL(10, 2)", ["1", 1, "1.00", Decimal("1.0"), "1e0", "+1."]),
        ("DECIMAL(38, 2)", ["0", "-0", "0.00", -0.0]),
        ("BIGINT", [5, "5", "+5", "005"]),
        ("TIMESTAMP(3)", ["2024-01-31T10:00:00", "2024-01-31 10:00:00.000"]),
        ("TIMESTAMP_LTZ(3)", ["2024-01-31T10:00:00Z", "2024-01-31T11:00:00+01:00", "2024-01-31T09:00:00.0-01:00"]),
        ("TIME(3)", ["10:00:00", "10:00:00.000"]),
    ],
)
def test_spellings_of_one_key_are_one_key(kind: str, raws: list[Any]) -> None:
    keys = [key_from_json(schema(kind), {"k": raw}, "") for raw in raws]
    assert len({repr(key) for key in keys}) == 1
    assert len({token_of(schema(kind), key) for key in keys}) == 1


@pytest.mark.parametrize("text", ["", "a/b", "..", "%2F", "+", "a b", "é", "𝄞", "\n"])
def test_a_text_key_may_hold_anything(text: str) -> None:
    one = schema("STRING")
    assert key_from_text(one, [text]) == (text,)
    assert key_to_json(one, (text,)) == {"k": text}


def _refusal(read: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        read()
    assert caught.value.code is ErrorCode.INVALID_KEY
    return [(violation.pointer, violation.code) for violation in caught.value.violations]


@pytest.mark.parametrize(
    ("texts", "faults"),
    [
        ([], [("/key", "wrong_key_length")]),
        (["1"], [("/key", "wrong_key_length")]),
        (["1", "a", "2"], [("/key", "wrong_key_length")]),
        (["x", "a"], [("/key/k", "wrong_type")]),
        (["9" * 12, "\ud800"], [("/key/k", "out_of_range"), ("/key/s", "not_unicode")]),
    ],
)
def test_a_key_in_a_url_names_every_fault(texts: list[str], faults: list[tuple[str, str]]) -> None:
    assert _refusal(lambda: key_from_text(table(None, COLUMNS, key="k,s"), texts)) == faults


@pytest.mark.parametrize(
    ("raw", "faults"),
    [
        (None, [("/keys/0", "not_an_object")]),
        ([1, "a"], [("/keys/0", "not_an_object")]),
        ({"k": 1}, [("/keys/0/s", "null_in_not_null")]),
        ({"k": "one", "s": 1}, [("/keys/0/k", "wrong_type"), ("/keys/0/s", "wrong_type")]),
        ({"k": 1, "s": "a", "v": 1, "x/": 2}, [("/keys/0/v", "unknown_column"), ("/keys/0/x~1", "unknown_column")]),
    ],
)
def test_a_key_in_json_names_every_fault(raw: Any, faults: list[tuple[str, str]]) -> None:
    assert _refusal(lambda: key_from_json(table(None, COLUMNS, key="k,s"), raw, "/keys/0")) == faults


@pytest.mark.parametrize("raw", [{}, {"k": None}])
def test_a_key_may_be_null_where_the_table_says_so(raw: Mapping[str, Any]) -> None:
    one = table({"primary-key.nullable": "true"}, COLUMNS)
    assert key_from_json(one, raw, "") == (None,)
    assert key_to_json(one, (None,)) == {"k": None}


def test_keys_are_in_primary_key_order() -> None:
    one = table(None, COLUMNS, key="s,k")
    assert key_from_text(one, ["a", "1"]) == ("a", 1)
    assert key_from_json(one, {"k": 1, "s": "a"}, "") == ("a", 1)
    assert token_of(one, ("a", 1)) != token_of(table(None, COLUMNS, key="k,s"), (1, "a"))


# Runs are sorted by them: what was stored must be found again. tests/spark_jobs/test_tokens.py asks Spark for more.
TOKENS = [
    ("BOOLEAN", "true", -6698625589789238999),
    ("TINYINT", "-3", 1399955818750051488),
    ("SMALLINT", "-300", 2895908635257747121),
    ("INT", "-70000", 3780762490442745380),
    ("BIGINT", "-70000", 6320425099413660933),
    ("FLOAT", "1.5", 6163473420726370430),
    ("DOUBLE", "1.5", 7738255526519901366),
    ("DECIMAL(6,2)", "-1.50", -3700955262752989823),
    ("DECIMAL(30,2)", "-1.50", -6659465364316328129),
    ("CHAR(3)", "abc", 1423657621850124518),
    ("VARCHAR(3)", "ä", 7417751083862048809),
    ("STRING", "z𝄞", 5485607173842235818),
    ("BINARY(2)", "AP8=", 879945414100663330),
    ("VARBINARY(2)", "AP8=", 879945414100663330),
    ("BYTES", "AP8=", 879945414100663330),
    ("DATE", "2024-02-29", 4183429117450946631),
    ("TIME(3)", "12:34:56.789", -6642948388326649525),
    ("TIMESTAMP(6)", "2024-02-29T12:34:56.789012", -2021281541725647388),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-02-29T12:34:56.789012Z", -2021281541725647388),
]


@pytest.mark.parametrize(("kind", "text", "token"), TOKENS)
def test_the_token_of_a_key_never_changes(kind: str, text: str, token: int) -> None:
    assert token_of(schema(kind), key_from_text(schema(kind), [text])) == token


def test_the_list_above_holds_every_type_of_a_key() -> None:
    listed = {schema(kind).columns[0].type.kind for kind, _, _ in TOKENS}
    assert listed == {kind for kind, entry in ENTRIES.items() if entry.hashed is not None}
