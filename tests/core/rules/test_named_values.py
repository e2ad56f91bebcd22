"""Columns that share a word of bits: each by itself, whatever their ids."""

from __future__ import annotations

from random import Random

import pytest

from app.core.plan.merging.evolution import same_fold
from app.core.plan.merging.fold import combine, finish, lift
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.named_values import NamedValues
from app.core.table.named_columns import NAMED_COLUMN, names_in, words_naming
from app.core.table.records import Record, RowKind
from app.core.table.schema import TableSchema

TELLING = {"merge-engine": "partial-update", "record.absent-columns": "unchanged"}


def schema(*ids: int) -> TableSchema:
    """A key, and columns of the given ids."""
    key = {"id": 0, "name": "k", "type": "INT NOT NULL"}
    fields = [{"id": number, "name": f"c{number}", "type": "INT"} for number in ids]
    return TableSchema.from_json({"fields": [key, *fields], "primaryKeys": ["k"], "options": TELLING})


@pytest.mark.parametrize("ids", [(1, 2), (62, 63, 64), (63,), (127, 128, 2**29)])
def test_words_give_back_what_a_record_names(ids: tuple[int, ...]) -> None:
    one = schema(*ids)
    random = Random(1)
    for _ in range(20):
        named = frozenset(column.name for column in one.columns if random.random() < 0.5)
        words = words_naming(one.columns, named)
        assert all(-(2**63) <= bits < 2**63 for bits in words.values())
        assert set(words) == {f"{NAMED_COLUMN}_{column.id // 64}" for column in one.columns}
        assert names_in(one, words) == named


@pytest.mark.parametrize("ids", [(62, 63), (63, 64, 2**29)])
def test_columns_of_any_id_are_cleared_and_left_alone(ids: tuple[int, ...]) -> None:
    one = schema(*ids)
    plan = compile_plan(one)
    names = [f"c{number}" for number in ids]
    whole = {"k": 1, **dict.fromkeys(names, 5)}
    first = lift(plan, Record(RowKind.INSERT, whole, 1))
    cleared = Record(RowKind.INSERT, {"k": 1, **dict.fromkeys(names)}, 2, frozenset({"k", names[-1]}))
    assert finish(plan, combine(plan, first, lift(plan, cleared))) == {**whole, names[-1]: None}


def test_a_column_that_needs_another_word_is_added_without_a_new_meaning() -> None:
    assert same_fold(schema(1, 63), schema(1, 63, 64))
    assert same_fold(schema(1, 63), schema(63))
    rules = [rule for rule in compile_plan(schema(1, 63, 64)).rules if isinstance(rule, NamedValues)]
    assert [[column.id for column in rule.columns] for rule in rules] == [[1, 63], [64]]
