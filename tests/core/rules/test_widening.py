"""A change of type alone never changes what rows mean."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.evolution import combined_row, same_fold
from app.core.plan.merging.fold import finish, fold
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.widening import widened
from app.core.table.records import KINDS_BY_TEXT, Record
from app.core.types.parser import parse_type
from tests import oracle
from tests.builders import schema_of
from tests.core.plan.merging.test_fold import by_key
from tests.core.tables import plan
from tests.histories import ENGINES, cut, examples, random_history, random_table, rewritten, widened_table


def records(plan: MergePlan, changes: list[oracle.Change], first: int) -> list[Record]:
    kinds = [KINDS_BY_TEXT[change.kind] for change in changes]
    numbered = enumerate(zip(kinds, changes, strict=True), first)
    return [Record(kind, change.values, i, change.named) for i, (kind, change) in numbered if kind not in plan.dropped]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_runs_written_before_and_after_a_widening_combine_to_the_fold_of_all_records(engine: str, seed: int) -> None:
    random = Random(seed)
    narrow, retracts = random_table(random, engine)
    wide, written = widened_table(random, narrow)
    note(f"{narrow} -> {wide}")
    plans = compile_plan(schema_of(narrow)), compile_plan(schema_of(wide))
    assert same_fold(plans[0].schema, plans[1].schema)
    for changes in by_key(narrow, random_history(random, narrow, retracts, 40)).values():
        all_written = [rewritten(change, written) for change in changes]
        expected = oracle.fold(wide, all_written)
        note(f"{changes} -> {expected}")
        altered = random.randint(0, len(changes))
        before = [
            fold(plans[0], records(plans[0], changes[:altered][piece], piece.start))
            for piece in cut(random, altered, 3)
        ]
        after = fold(plans[1], records(plans[1], all_written[altered:], altered))
        stored = [*((plans[0], state) for state in before), (plans[1], after)]
        whole = combined_row(plans[1], [(p, state) for p, state in stored if state is not None])
        assert (None if whole is None else oracle.meant(wide, finish(plans[1], whole))) == expected


SUMMED = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}


@pytest.mark.parametrize(("wider", "shown"), [("BIGINT", 2**32 - 2), ("DECIMAL(10, 0)", Decimal(2**32 - 2))])
def test_a_total_that_left_the_old_type_is_shown_in_the_wider_one(wider: str, shown: Any) -> None:
    old, new = (plan(SUMMED, {"k": "INT", "a": kind}) for kind in ("INT", wider))
    state = fold(old, [Record(KINDS_BY_TEXT["+I"], {"k": 1, "a": 2**31 - 1}, i) for i in (1, 2)])
    assert state is not None
    assert finish(new, combined_row(new, [(old, state)]) or {}) == {"k": 1, "a": shown}


def test_a_product_that_rounds_in_another_way_is_another_function() -> None:
    factors: Mapping[str, str] = {"merge-engine": "aggregation", "fields.a.aggregate-function": "product"}
    whole, long, exact = (plan(factors, {"k": "INT", "a": kind}).schema for kind in ("INT", "BIGINT", "DECIMAL(12, 2)"))
    assert same_fold(whole, long)
    assert not same_fold(long, exact)


def test_nested_values_are_found_by_the_ids_of_their_fields() -> None:
    def row(*fields: tuple[int, str, str]) -> Any:
        return parse_type({"type": "ROW", "fields": [{"id": i, "name": n, "type": t} for i, n, t in fields]})

    old, new = row((1, "a", "INT"), (2, "b", "FLOAT")), row((2, "c", "DOUBLE"), (3, "a", "STRING"))
    assert widened({"a": 1, "b": 0.5}, old, new) == {"c": 0.5, "a": None}
