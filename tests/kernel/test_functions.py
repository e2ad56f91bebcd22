"""Every aggregate function, in every order of records, with and without retracts."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.functions.entries import FUNCTIONS
from app.core.plan.merging.merge_plan import compile_plan
from tests.builders import schema_of
from tests.histories import FUNCTION_TYPES, RETRACTABLE, TableMaker, cut, examples, random_history
from tests.kernel.expected import expected_rows, shown, visible
from tests.kernel.test_columns_and_rows import folded_rows, same
from tests.oracle import TableCase
from tests.site import Site

ORDERS: Mapping[str, Mapping[str, str]] = {
    "arrival": {"merge-engine": "aggregation"},
    "sequence": {"merge-engine": "aggregation", "sequence.field": "g"},
    "removed": {"merge-engine": "aggregation", "sequence.field": "g", "aggregation.remove-record-on-delete": "true"},
    "group": {"merge-engine": "partial-update"},
    "replayed": {"merge-engine": "partial-update", "partial-update.remove-record-on-sequence-group": "g"},
    "late": {"merge-engine": "aggregation", "sequence.field": "g", "sequence.late-horizon": "1"},
}


def test_every_function_is_played() -> None:
    assert set(FUNCTION_TYPES) == set(FUNCTIONS)


def table_of(random: Random, function: str, order: str) -> tuple[TableCase, bool]:
    """A table that has the function on a column of each of its types."""
    maker = TableMaker(random, 1)
    maker.options.update(ORDERS[order])
    maker.column("g", ["INT"])
    retracts = maker.retracts = function in RETRACTABLE and random.random() < 0.7
    names = []
    for place, data_type in enumerate(FUNCTION_TYPES[function]):
        names.append(maker.column(f"v{place}", [data_type]))
        maker.options[f"fields.{names[-1]}.aggregate-function"] = function
        maker.own_options(names[-1], function)
        if order == "removed":
            continue
        if function not in RETRACTABLE:
            maker.options[f"fields.{names[-1]}.ignore-retract"] = "true"
    if "partial-update" in maker.options.values():
        maker.options["fields.g.sequence-group"] = ",".join(names)
    return maker.table(), retracts


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("function", FUNCTION_TYPES)
@settings(max_examples=examples(2))
@given(seed=st.integers(0, 2**32))
def test_a_function_is_folded_as_it_means(
    function: str, order: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    table, retracts = table_of(random, function, order)
    note(str(table))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(table)))
    history: list[Any] = random_history(random, table, retracts, 60)
    for piece in cut(random, len(history), 3):
        before, first = len(site.runs), len(site.batches) + 1
        expected = folded_rows(site, [history[piece]], first)
        site.merge([history[piece]])
        same(site.runs[-1] if len(site.runs) > before else None, site, expected)
    assert shown(table, site) == visible(expected_rows(table, history))
    site.compact(0, len(site.runs))
    assert shown(table, site) == visible(expected_rows(table, history)), "after a full compaction"
