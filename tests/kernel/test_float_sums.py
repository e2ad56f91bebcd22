"""Sums of FLOAT and DOUBLE by whole columns have the bits of the rule, which is left few of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.float_sums import FloatSum, added, retracted
from app.kernel.float_sums import float_sums
from tests.builders import schema_of
from tests.histories import examples
from tests.kernel.test_histories import combined_rows, folded_rows, same
from tests.oracle import Change, TableCase
from tests.site import Site

TYPES = {"DOUBLE": pa.float64(), "FLOAT": pa.float32()}
LARGEST = {"DOUBLE": 1.7976931348623157e308, "FLOAT": 3.4028234663852886e38}
HARD = [0.0, -0.0, 0.1, 1.0, -1.0, 1e16, -1e16, 5e-324, -5e-324, 2.0**-149, -(2.0**-149), math.inf, -math.inf, math.nan]


def of_type(data_type: str, value: float) -> float:
    if data_type == "DOUBLE" or not math.isfinite(value):
        return value
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def hard(data_type: str) -> list[float]:
    return [*(of_type(data_type, value) for value in HARD), LARGEST[data_type], -LARGEST[data_type]]


def values_of(data_type: str) -> st.SearchStrategy[float]:
    prices = st.integers(-100_000, 100_000).map(lambda cents: of_type(data_type, cents / 100))
    return st.one_of(st.sampled_from(hard(data_type)), prices, st.floats(width=32 if data_type == "FLOAT" else 64))


def sums_of(data_type: str) -> st.SearchStrategy[FloatSum]:
    """Sums as states of a column hold them."""
    one = st.tuples(values_of(data_type), st.booleans()).map(lambda of: FloatSum(of[0]) if of[1] else retracted(of[0]))
    return st.lists(one, min_size=1, max_size=4).map(lambda sums: added(sums, single=data_type == "FLOAT"))


def bits(one: FloatSum) -> tuple[bytes, tuple[bytes, ...]]:
    return struct.pack(">d", one.number), tuple(struct.pack(">d", number) for number in one.rest or ())


def by_columns(tuples: Sequence[Sequence[FloatSum]], data_type: str, *, single: bool) -> list[FloatSum | None]:
    """The sum of each of ``tuples``, None where the rule has to say it."""
    parts = [
        (
            pa.array([one.number for one in of], TYPES[data_type]),
            pa.array([one.rest for one in of], pa.list_(pa.float64())),
        )
        for of in zip(*tuples, strict=True)
    ]
    found = float_sums(parts, single=single)
    rows = zip(found.short, found.numbers.to_pylist(), found.rests.to_pylist(), strict=True)
    return [FloatSum(number, rest) if short else None for short, number, rest in rows]


@pytest.mark.parametrize(("stored", "shown"), [("DOUBLE", "DOUBLE"), ("FLOAT", "FLOAT"), ("FLOAT", "DOUBLE")])
@given(st.data())
def test_a_short_sum_has_the_bits_of_the_rule(stored: str, shown: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    pairs = data.draw(st.lists(st.tuples(*[sums_of(stored)] * count), min_size=1, max_size=10))
    single = shown == "FLOAT"
    for pair, found in zip(pairs, by_columns(pairs, stored, single=single), strict=True):
        if found is not None:
            assert bits(found) == bits(added(pair, single=single)), pair


@pytest.mark.parametrize("data_type", TYPES)
def test_all_hard_values_alone_and_in_pairs_have_the_bits_of_the_rule(data_type: str) -> None:
    ones = [FloatSum(value) for value in hard(data_type)] + [
        added([FloatSum(a), FloatSum(b)], single=data_type == "FLOAT") for a in hard(data_type) for b in hard(data_type)
    ]
    for tuples in [(one,) for one in ones], [(a, b) for a in ones for b in ones]:
        found = by_columns(tuples, data_type, single=data_type == "FLOAT")
        reported = [(of, one) for of, one in zip(tuples, found, strict=True) if one is not None]
        assert [bits(one) for _, one in reported] == [
            bits(added(of, single=data_type == "FLOAT")) for of, _ in reported
        ]
        assert len(reported) > len(tuples) / 10


@pytest.mark.parametrize("data_type", TYPES)
def test_sums_of_prices_are_short(data_type: str) -> None:
    random = Random(0)
    sums = [
        added(
            [FloatSum(of_type(data_type, random.randint(-100_000, 100_000) / 100)) for _ in range(100)],
            single=data_type == "FLOAT",
        )
        for _ in range(200)
    ]
    pairs = [*zip(sums, reversed(sums), strict=True), *((one, retracted(one.number)) for one in sums)]
    assert any(one.rest for one in sums)
    assert None not in by_columns(pairs, data_type, single=data_type == "FLOAT")
    zeros = [(FloatSum(0.0), FloatSum(-0.0)), (FloatSum(-0.0), FloatSum(-0.0)), (FloatSum(1.5), FloatSum(-1.5))]
    assert None not in by_columns(zeros, data_type, single=data_type == "FLOAT")


@pytest.mark.parametrize("data_type", TYPES)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_merges_and_compactions_of_hard_values_have_the_bits_of_the_rule(
    data_type: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = TableCase(
        (("k", "INT"), ("v", data_type)), ("k",), {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    )
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    value = st.one_of(st.none(), values_of(data_type))
    change: Any = st.builds(
        lambda kind, key, value: Change(kind, {"k": key, "v": value}),
        st.sampled_from(("+I", "+U", "-U", "-D")),
        st.integers(0, 5),
        value,
    )
    for number in range(1, 4):
        changes = data.draw(st.lists(change, min_size=1, max_size=20))
        expected = folded_rows(site, [changes], number)
        site.merge([changes])
        same(site.runs[-1], site, expected)
    expected = combined_rows(site, site.runs, oldest=True)
    site.compact(0, 3)
    same(site.runs[0] if site.runs else None, site, expected)
