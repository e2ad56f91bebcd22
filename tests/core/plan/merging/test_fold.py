"""The fold in Python: any cut of a history gives the answer of the one-by-one fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from app.core.plan.merging.fold import combine_all, compacted, finish, fold, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.records import KINDS_BY_TEXT, Record
from tests import oracle
from tests.builders import schema_of
from tests.histories import ENGINES, cut, examples, random_history, random_table


def to_records(plan: MergePlan, changes: list[oracle.Change]) -> list[Record]:
    return [
        Record(KINDS_BY_TEXT[change.kind], change.values, i, change.named)
        for i, change in enumerate(changes)
        if KINDS_BY_TEXT[change.kind] not in plan.dropped
    ]


def by_key(table: oracle.TableCase, history: list[oracle.Change]) -> Mapping[tuple[Any, ...], list[oracle.Change]]:
    keys: dict[tuple[Any, ...], list[oracle.Change]] = defaultdict(list)
    for change in history:
        keys[tuple(change.values[name] for name in table.primary_key)].append(change)
    return keys


def combine_anyhow(random: Random, plan: MergePlan, states: list[Any], *, oldest: bool = False) -> Any:
    """All states combined, neighbours first in random places: any tree over the same order, of two or more at a time.

    ``oldest``: nothing lies below the first, and now and then it is compacted.
    """
    states = list(states)
    while len(states) > 1:
        place = random.randrange(len(states) - 1)
        last = random.randint(place + 2, len(states))
        states[place:last] = [combine_all(plan, states[place:last])]
        if oldest and random.random() < 0.6:
            states[0] = compacted(plan, states[0], 0, oldest=True) or states[0]
    return states[0]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(150))
@given(seed=st.integers(0, 2**32))
def test_any_cut_and_any_tree_of_combines_gives_the_row_of_the_one_by_one_fold(engine: str, seed: int) -> None:
    random = Random(seed)
    table, retracts = random_table(random, engine)
    note(f"{table}")
    plan = compile_plan(schema_of(table))
    history = random_history(random, table, retracts, 40)
    for changes in by_key(table, history).values():
        expected = oracle.fold(table, changes)
        records = to_records(plan, changes)
        note(f"{changes} -> {expected}")
        whole = fold(plan, records)
        assert (None if whole is None else oracle.meant(table, finish(plan, whole))) == expected
        if records:
            pieces = [records[piece] for piece in cut(random, len(records), 4) if records[piece]]
            states = [combine_anyhow(random, plan, [lift(plan, record) for record in piece]) for piece in pieces]
            combined = combine_anyhow(random, plan, states, oldest=random.random() < 0.7)
            assert oracle.meant(table, finish(plan, combined)) == expected


@pytest.mark.parametrize("delimiter", ["", "--", "-+-"])
@pytest.mark.parametrize("texts", [["x", "a", "a"], ["x", "a b", "a"], ["a-", "-b", "b"], ["a-", "+-b", "b"]])
@pytest.mark.parametrize("function", [{}, {"fields.v.ignore-retract": "true"}])
def test_distinct_texts_whose_delimiter_overlaps_itself_are_split_alike_in_any_cut(
    delimiter: str, texts: list[str], function: dict[str, str]
) -> None:
    """Joined, such texts may split into other tokens than those that they were joined of."""
    options = {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "listagg",
        "fields.v.distinct": "true",
        "fields.v.list-agg-delimiter": delimiter,
    }
    plan = compile_plan(schema_of(oracle.TableCase((("k", "INT"), ("v", "STRING")), ("k",), options | function)))
    records = [Record(KINDS_BY_TEXT["+I"], {"k": 1, "v": text}, i) for i, text in enumerate(texts)]
    first, *others = [lift(plan, record) for record in records]
    one_by_one = combine_all(plan, [combine_all(plan, [first, others[0]]), others[1]])
    newest_first = combine_all(plan, [first, combine_all(plan, others)])
    assert finish(plan, one_by_one) == finish(plan, newest_first) == finish(plan, fold(plan, records))
    del first["_kf_log_1"]  # as an earlier release wrote it
    assert finish(plan, combine_all(plan, [first, *others])) == finish(plan, one_by_one)
