"""Examples are folded by the program, for every type that there is."""

from __future__ import annotations

import pytest

from app.core.errors import Invalid
from app.core.functions.entries import FUNCTIONS
from app.core.table.options.entries import MergeEngine
from app.core.types.kinds import Family, Kind
from app.core.types.parser import parse_type
from app.services.explaining.fold_examples import LONGEST_TYPE, fold_example
from app.services.explaining.type_samples import SAMPLES, samples

TYPES = [
    *(f"{kind}" for kind in Kind if kind not in (Kind.ARRAY, Kind.MULTISET, Kind.MAP, Kind.ROW, Kind.TIMESTAMP_LTZ)),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "CHAR(3)",
    "BINARY(3)",
    "DECIMAL(2, 2)",
    "DECIMAL(38, 10)",
    "INT NOT NULL",
    "ARRAY<ARRAY<DATE>>",
    "MULTISET<STRING>",
    "MAP<INT, BYTES>",
    "MAP<STRING, ROW<v INT, at TIME>>",
    "ROW<a INT, b ROW<c STRING>>",
]


def test_every_family_of_types_has_samples() -> None:
    assert set(SAMPLES) == set(Family)
    assert {parse_type(text).family for text in TYPES} == set(Family)


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("engine", MergeEngine)
def test_a_column_of_any_type_has_an_example(text: str, engine: MergeEngine) -> None:
    example = fold_example(engine, text)
    assert example.values == samples(parse_type(text))
    assert example.result is None or text not in ("INT", "STRING") or example.result in example.values


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("text", TYPES)
def test_a_function_has_an_example_of_each_type_that_it_takes(text: str, name: str) -> None:
    data_type = parse_type(text)
    if not FUNCTIONS[name].types(data_type):
        with pytest.raises(Invalid):
            fold_example(MergeEngine.AGGREGATION, text, name)
    elif (name, text) == ("sum", "DECIMAL(2, 2)"):
        assert fold_example(MergeEngine.AGGREGATION, text, name).result == "0.10"
    elif not (FUNCTIONS[name].samples and data_type.kind is not Kind.BYTES):
        assert fold_example(MergeEngine.AGGREGATION, text, name).type == data_type.sql


def test_a_type_that_is_too_long_has_none() -> None:
    with pytest.raises(Invalid):
        fold_example(MergeEngine.AGGREGATION, " " * LONGEST_TYPE + "INT")
