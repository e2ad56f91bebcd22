"""The differences between two schemas of a table, in words: the events between the steps of an explanation."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.plan.merging.evolution import same_fold
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.widening import same_type
from app.core.table.schema import TableSchema

NEW_RULES = "the rules changed: the row that was shown is the first record of the new ones"


def changes_in_words(old: TableSchema, new: TableSchema) -> list[str]:
    """Return how rows under ``new`` may differ from those under ``old``, in words; empty if only options that do not
    matter differ.
    """
    return [*_columns(old, new), *([] if same_fold(old, new) else [NEW_RULES]), *_defaults(old, new)]


def _columns(old: TableSchema, new: TableSchema) -> Iterator[str]:
    before = {column.id: column for column in old.columns}
    after = {column.id: column for column in new.columns}
    yield from (f"column {column.name} was dropped" for number, column in before.items() if number not in after)
    yield from (f"column {column.name} was added" for number, column in after.items() if number not in before)
    for number in before.keys() & after.keys():
        one, other = before[number], after[number]
        if one.name != other.name:
            yield f"column {one.name} is called {other.name}"
        if not same_type(one.type, other.type):
            yield f"column {other.name}: {one.type.base_sql} became {other.type.base_sql}"


def _defaults(old: TableSchema, new: TableSchema) -> Iterator[str]:
    names = {column.id: column.name for column in new.columns}
    before, after = (
        {plan.schema.by_name[name].id: value for name, value in plan.read_defaults.items()}
        for plan in (compile_plan(old), compile_plan(new))
    )
    for number, name in names.items():
        if before.get(number) != after.get(number):
            yield f"column {name} has another default"
