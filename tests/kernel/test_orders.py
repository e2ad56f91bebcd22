"""Sequences, maxima, minima and retracts up to the last digit of every type: by columns as key by key."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.core.plan.merging.merge_plan import compile_plan
from tests.builders import schema_of
from tests.core.rules.test_order import SORTED
from tests.kernel.test_histories import combined_rows, folded_rows, same
from tests.oracle import Change, TableCase
from tests.site import Site

EXACT_NEIGHBOURS = [Decimal("-" + "9" * 38), Decimal("-" + "9" * 37 + "8"), Decimal("9" * 37 + "8"), Decimal("9" * 38)]
ORDERED: dict[str, list[Any]] = SORTED | {
    "TINYINT": [-128, -1, 0, 1, 127],
    "DECIMAL(38, 0)": EXACT_NEIGHBOURS,
    "DECIMAL(18, 3)": [Decimal("-999999999999999.999"), Decimal("0.000"), Decimal("999999999999999.999")],
}
PADDED: dict[str, list[Any]] = {
    "DOUBLE": [-1e300, -1e19, -1.5, -0.5, 0.0, 0.5, 1.5, 2.0**63, 1e19, 1e300],
    "FLOAT": [-(2.0**100), -1.5, 0.0, 2.0**63, 2.0**100],
    "DECIMAL(38, 2)": SORTED["DECIMAL(38, 2)"],
    "STRING": ["-" + "9" * 37, "-10", "-9", "0", "+7", "007", "10", "9" * 36 + "8", "9" * 37],
    "INT": SORTED["INT"],
    "TIMESTAMP(6)": SORTED["TIMESTAMP(6)"],
    "TIMESTAMP_LTZ(6)": SORTED["TIMESTAMP_LTZ(6)"],
}
AGGREGATED = {
    "merge-engine": "aggregation",
    "sequence.field": "s",
    "fields.a.aggregate-function": "last_value",
    "fields.f.aggregate-function": "first_value",
}


def check_pairs(folder: Path, table: TableCase, values: list[Any]) -> None:
    """Merge and compact all pairs of values, each way round, each pair a key."""
    pairs = [(value, other) for value in values for other in values]
    names = [name for name, _ in table.columns if name not in ("k", "a", "f")]
    batches = [
        [
            Change("+I", {"k": k, "a": turn, "f": turn, **dict.fromkeys(names, pair[turn])})
            for k, pair in enumerate(pairs)
        ]
        for turn in range(2)
    ]
    site = Site(folder, compile_plan(schema_of(table)))
    expected = folded_rows(site, batches, 1)
    site.merge(batches)
    same(site.runs[0], site, expected)
    site.runs = []
    for batch in batches:
        site.merge([batch])
    expected = combined_rows(site, site.runs, oldest=True)
    site.compact(0, 2)
    same(site.runs[0], site, expected)


@pytest.mark.parametrize("direction", ["ascending", "descending"])
@pytest.mark.parametrize("data_type", ORDERED)
def test_values_of_every_type_are_ordered(data_type: str, direction: str, tmp_path: Path) -> None:
    columns = (("k", "INT"), ("s", data_type), ("a", "INT"), ("f", "INT"), ("most", data_type), ("least", data_type))
    options = AGGREGATED | {"sequence.field.sort-order": direction}
    options |= {"fields.most.aggregate-function": "max", "fields.least.aggregate-function": "min"}
    check_pairs(tmp_path, TableCase(columns, ("k",), options), [*ORDERED[data_type], None])


@pytest.mark.parametrize("padding", ["row-kind-flag", "second-to-micro", "millis-to-micro"])
@pytest.mark.parametrize("data_type", PADDED)
def test_padded_sequences_are_ordered(data_type: str, padding: str, tmp_path: Path) -> None:
    columns = (("k", "INT"), ("s", data_type), ("a", "INT"), ("f", "INT"))
    table = TableCase(columns, ("k",), {"sequence.field": "s", "sequence.auto-padding": padding})
    check_pairs(tmp_path, table, PADDED[data_type])


@pytest.mark.parametrize("data_type", ["DECIMAL(38, 0)", "DECIMAL(4, 2)", "BIGINT", "TINYINT", "DOUBLE", "FLOAT"])
def test_a_retract_is_subtracted_to_the_last_digit(data_type: str, tmp_path: Path) -> None:
    values: list[Any] = {
        "DECIMAL(38, 0)": EXACT_NEIGHBOURS,
        "DECIMAL(4, 2)": [Decimal("99.99"), Decimal("-99.99")],
        "BIGINT": [2**63 - 1, -(2**63), 2**53 + 1],
        "TINYINT": [-128, 127],
        "DOUBLE": [0.1, -1e308, -0.0],
        "FLOAT": [0.5, -(2.0**100)],
    }[data_type]
    columns = (("k", "INT"), ("n", data_type))
    table = TableCase(columns, ("k",), {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    site = Site(tmp_path, compile_plan(schema_of(table)))
    batches = [[Change("-D", {"k": key, "n": value}) for key, value in enumerate(values)]]
    batches.append([Change("+I", {"k": key, "n": value}) for key, value in enumerate(values)])
    expected = folded_rows(site, batches[:1], 1)
    site.merge(batches[:1])
    same(site.runs[0], site, expected)
    site.merge(batches[1:])
    expected = combined_rows(site, site.runs, oldest=True)
    site.compact(0, 2)
    same(site.runs[0], site, expected)
    assert [row["n"] for row in site.states(site.runs[0])] == [0] * len(values)
