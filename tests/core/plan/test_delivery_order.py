"""Records may be delivered in any order that keeps what the plan calls order: the row is the same."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.fold import finish, fold
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.rules.named_values import NamedValues
from app.core.rules.order import Order
from app.core.rules.register import Register
from app.core.rules.replays.replay import Replay
from app.core.rules.stepwise import Stepwise
from app.core.table.records import KINDS_BY_TEXT, Record
from tests import oracle
from tests.builders import schema_of
from tests.histories import random_history, random_table


def orders_of(plan: MergePlan) -> Iterator[Order]:
    """Every order that decides something in the plan."""
    if any(isinstance(rule, Replay) for rule in plan.rules):
        yield plan.order
    for rule in plan.column_rules:
        if isinstance(rule, NamedValues):
            yield Order()
        if isinstance(rule, (Register, Stepwise)):
            own_value = tuple(field.column for field in rule.order.fields) == tuple(rule.columns) and rule.columns
            if not (own_value and isinstance(rule, Register) and rule.part.skips_null):
                yield rule.order


def tied(orders: list[Order], a: oracle.Change, b: oracle.Change) -> bool:
    """Whether arrival decides between two changes somewhere."""
    return any(order.rank(a.values, a.add) == order.rank(b.values, b.add) for order in orders)


def redelivered(random: Random, orders: list[Order], changes: list[oracle.Change]) -> list[oracle.Change]:
    """The changes in another order: neighbours swapped at random unless they are tied."""
    shuffled = list(changes)
    for _ in range(len(changes) ** 2):
        place = random.randrange(len(shuffled) - 1)
        if not tied(orders, shuffled[place], shuffled[place + 1]):
            shuffled[place : place + 2] = shuffled[place + 1], shuffled[place]
    return shuffled


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
@settings(max_examples=80)
@given(seed=st.integers(0, 2**32))
def test_any_delivery_that_keeps_the_order_of_the_plan_gives_the_same_row(engine: str, seed: int) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    plan = compile_plan(schema_of(table))
    orders = list(orders_of(plan))
    assume(not plan.row.removes_on_delete and not any(order.by_arrival for order in orders))
    assume("sequence.late-horizon" not in table.options)  # what came before decides what is too late
    note(str(table))
    changes = [
        change
        for change in random_history(random, table, retracts, 60)
        if change.values["k"] == 3 and change.values.get("j", "x") == "x"
    ]
    assume(len(changes) > 1)
    rows = []
    for delivery in (changes, redelivered(random, orders, changes)):
        note(str(delivery))
        kinds = [KINDS_BY_TEXT[change.kind] for change in delivery]
        pairs = enumerate(zip(kinds, delivery, strict=True))
        records = [
            Record(kind, change.values, i, change.named) for i, (kind, change) in pairs if kind not in plan.dropped
        ]
        state = fold(plan, records)
        rows.append(None if state is None else oracle.meant(table, finish(plan, state)))
    assert rows[0] == rows[1]
