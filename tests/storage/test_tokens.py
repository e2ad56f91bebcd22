"""Tokens by the column are those of the keys one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.keys import token_of
from app.storage.arrow import staging_schema
from app.storage.tokens import tokens_of, tokens_of_keys
from tests.services.builders import schema

WHOLE = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from([*WHOLE, "STRING"]), min_size=1, max_size=3))
    values = [
        st.text(max_size=40) if kind == "STRING" else st.integers(-(2 ** (WHOLE[kind] - 1)), 2 ** (WHOLE[kind] - 1) - 1)
        for kind in kinds
    ]
    return kinds, draw(st.lists(st.tuples(*values), max_size=6))


@given(keys())
def test_tokens_of_many_keys_are_those_of_each(given_keys: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    kinds, values = given_keys
    names = [f"k{number}" for number in range(len(kinds))]
    of = schema(*zip(names, kinds, strict=True), key=names)
    columns = [*names, "_kf_kind", "_kf_position"]
    rows = pa.Table.from_pylist(
        [dict(zip(columns, (*key, 0, 0), strict=True)) for key in values], schema=staging_schema(of)
    )
    assert tokens_of(of, rows).tolist() == [token_of(of, key) for key in values]
    assert tokens_of_keys(of, values).tolist() == [token_of(of, key) for key in values]


@pytest.mark.parametrize("kind", ["INT", "BIGINT"])
def test_a_null_in_a_key_leaves_the_hash_as_it_was(kind: str) -> None:
    of = schema(("a", kind), ("b", "STRING"), key=("a", "b"), options={"primary-key.nullable": "true"})
    rows = pa.Table.from_pylist([{"a": None, "b": "x"}, {"a": 1, "b": None}], schema=staging_schema(of))
    assert tokens_of(of, rows).tolist() == [token_of(of, (None, "x")), token_of(of, (1, None))]
    assert tokens_of_keys(of, [(None, "x"), (1, None)]).tolist() == tokens_of(of, rows).tolist()
    whole = schema(("a", kind), key=("a",), options={"primary-key.nullable": "true"})
    assert tokens_of_keys(whole, [(None,), (1,)]).tolist() == [token_of(whole, (None,)), token_of(whole, (1,))]
