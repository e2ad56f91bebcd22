"""Tokens by the column are those of the keys one by one."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.table.history import DataFile, Run
from app.core.table.keys import token_of
from app.files.arrow import staging_schema
from app.files.tokens import files_with, files_with_any, tokens_of, tokens_of_keys
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


def check(kinds: list[str], columns: list[list[Any]]) -> None:
    """The tokens of whole columns, in one piece and in a slice of it, are those of the keys one by one."""
    names = [f"k{number}" for number in range(len(kinds))]
    of = schema(*zip(names, kinds, strict=True), key=names, options={"primary-key.nullable": "true"})
    fields = [staging_schema(of).field(name) for name in names]
    rows = pa.table([pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)], names)
    expected = [token_of(of, key) for key in zip(*columns, strict=True)]
    assert tokens_of(of, rows).tolist() == expected
    assert tokens_of(of, rows.slice(3, len(expected) - 7)).tolist() == expected[3:-4]
    assert tokens_of(of, pa.concat_tables([rows.slice(0, 5), rows.slice(5)])).tolist() == expected


RANDOM = Random(30)


@pytest.mark.parametrize("length", [*range(1, 72), 127, 128, 129, 300])
def test_texts_of_one_length_are_hashed_together(length: int) -> None:
    values = [RANDOM.randbytes(length) for _ in range(300)]
    check(["BYTES"], [values])
    check(["BIGINT", "BYTES"], [[*range(300)], [None if place % 7 == 0 else one for place, one in enumerate(values)]])


def test_texts_of_many_lengths_are_hashed_in_their_places() -> None:
    texts = ["ü" * RANDOM.choice([0, 0, 1, 5]) + "x" * RANDOM.choice([0, 8, 9]) for _ in range(3000)]
    check(["STRING", "INT"], [texts, [place % 11 - 5 for place in range(3000)]])
    check(["INT", "STRING"], [[None] * 3000, [None if place % 2 else one for place, one in enumerate(texts)]])


COLUMNS: list[tuple[str, list[Any]]] = [
    ("BOOLEAN", [True, False, None]),
    ("TINYINT", [-128, 127, None]),
    ("SMALLINT", [-(2**15), 2**15 - 1]),
    ("INT", [-(2**31), 2**31 - 1, None]),
    ("BIGINT", [-(2**63), 2**63 - 1, None]),
    ("DATE", [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    ("TIME(3)", [0, 86_399_999, None]),
    ("TIMESTAMP(6)", [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), None]),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 1, 31, tzinfo=UTC)]),
    ("DECIMAL(5, 2)", [Decimal("-1.50"), Decimal("999.99"), None]),
    ("DECIMAL(38, 0)", [Decimal(10**37), Decimal(-1), None]),
    ("FLOAT", [0.0, 1.5, None]),
    ("DOUBLE", [0.1, -1e300, float("inf")]),
    ("STRING", ["", "a", None]),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[kind for kind, _ in COLUMNS])
def test_a_column_of_any_type_is_hashed_as_its_values_are(kind: str, values: list[Any]) -> None:
    check(["STRING", kind], [[str(place) for place in range(300)], values * (300 // len(values))])


TOKENS = st.integers(-30, 30)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Files by their first token, as runs have them; they may touch, share tokens and lie within each other."""
    ranges = sorted(draw(st.lists(st.tuples(TOKENS, TOKENS).map(sorted), max_size=8)))
    return Run("r", 0, tuple(DataFile(f"f{place}", 1, 1, *one) for place, one in enumerate(ranges)))


@given(runs(), TOKENS)
def test_the_files_with_a_token_are_those_in_whose_range_it_is(run: Run, token: int) -> None:
    wanted = [file for file in run.files if file.min_token <= token <= file.max_token]
    assert list(files_with(run, token)) == wanted


@given(runs(), st.lists(TOKENS, max_size=12))
def test_files_with_any_of_many_tokens_are_those_with_each(run: Run, tokens: list[int]) -> None:
    found: dict[str, list[int]] = defaultdict(list)
    for file, places in files_with_any(run, np.array(tokens, dtype=np.int64)):
        found[file.name] += places.tolist()
    wanted: dict[str, list[int]] = defaultdict(list)
    for place, token in enumerate(tokens):
        for file in files_with(run, token):
            wanted[file.name].append(place)
    assert {name: sorted(places) for name, places in found.items()} == wanted


class Read:
    """A file that counts how often its range is looked at."""

    looks = 0

    def __init__(self, token: int) -> None:
        self.min_token = self._last = token

    @property
    def max_token(self) -> int:
        type(self).looks += 1
        return self._last


def test_a_token_is_found_without_looking_at_every_file() -> None:
    run = Run("r", 0, tuple(Read(token) for token in range(1000)))  # type: ignore[arg-type]  # stands for data files
    assert len(run.last_tokens) == 1000
    before = Read.looks
    assert [file.min_token for file in files_with(run, 700)] == [700]
    assert Read.looks - before == 1
