"""Simulations of totals that leave their column's type: checked once, at the end (docs/semantics.md, A.7)."""

from __future__ import annotations

import json

import pytest

from app.core.errors import KeyfoldError
from app.services.explaining.simulations import simulate_merge
from tests.services.builders import schema

SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


def simulated(declared: str, *values: str) -> list[object]:
    """The total after each record of one key."""
    table = schema(("id", "BIGINT"), ("n", declared), options=SUMS)
    records = [{"id": 7, "n": value} for value in values]
    [row] = simulate_merge(json.dumps({"schema": table.to_json(), "records": records}).encode())
    return [(step.after or {})["n"] for step in row.steps]


@pytest.mark.parametrize(
    ("declared", "most"), [("TINYINT", "127"), ("BIGINT", str(2**63 - 1)), ("DECIMAL(38, 2)", "9" * 36 + ".99")]
)
def test_a_total_that_leaves_its_type_may_come_back(declared: str, most: str) -> None:
    left, back = simulated(declared, most, "1", "-1")[1:]
    assert (left, str(back)) == (None, most)
    with pytest.raises(KeyfoldError, match=r"column 'n' of key \{'id': 7\}: its total is out of range"):
        simulated(declared, most, "1")
