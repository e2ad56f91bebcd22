"""Explanations of random histories across merges, compactions, changes of the schema and rollbacks: each step, and
where each value came from, held against an independent fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from app.core.errors import NotFound
from app.core.plan.checks.option_checks import check_options
from app.core.plan.explaining.explained_fold import ColumnStep
from app.services.explaining.explained import ExplainedRow
from app.services.rows.lookups import Images
from app.services.shared.executor import MergeSite
from tests import oracle
from tests.builders import schema_of
from tests.catalog.builders import by_turns
from tests.histories import ENGINES, random_history, random_table
from tests.oracle import Change, TableCase, says
from tests.services.explaining.explained_play import Play, Posted, is_sketch, places_of, records_of

STEPS = 9
OPTIONS = {"num-sorted-run.compaction-trigger": "99", "snapshot.num-retained.min": "99"}
# By type: a value that no history holds.
OTHERS: list[tuple[str, Any]] = [
    ("TINYINT", 77),
    ("SMALLINT", 77),
    ("INT", 77),
    ("BIGINT", 77),
    ("DOUBLE", 99.5),
    ("FLOAT", 99.5),
    ("DECIMAL", Decimal("77.25")),
    ("STRING", "other"),
    ("DATE", date(2001, 1, 1)),
    ("TIMESTAMP(6)", datetime(2001, 1, 1)),
    ("VARBINARY", b"\x55"),
    ("BYTES", b"\x55"),
    ("ARRAY<INT>", [77]),
    ("MAP<STRING, INT>", [("other", 9)]),
]
ORDERING = ("max", "min")


def drawn(random: Random, engine: str) -> tuple[TableCase, bool]:
    while True:
        case, retracts = random_table(random, engine)
        case = replace(case, options={**case.options, **OPTIONS})
        if not check_options(schema_of(case)):
            return case, retracts


def play(random: Random, site: MergeSite, images: Images, engine: str, *, forgets: bool) -> Play:
    """A random history of a random table; ``forgets``: not all of it is kept."""
    case, retracts = drawn(random, engine)
    play = Play.begin(site, images, case)
    for step in range(STEPS):
        what = random.choice(("merge", "merge", "compact", "roll back", "widen", "rename", "forget")) if step else ""
        if what == "compact" and play.current:
            play.compact()
        elif what == "forget" and forgets and play.current:
            play.forget()
        elif what == "roll back" and play.current:
            play.roll_back(random.choice([number for number in play.at if number]))
        elif what == "widen":
            play.merge()
            play.widen(random)
        elif what == "rename" and case.values:
            play.rename(random.choice(case.values), f"renamed{step}")
        else:
            play.post(random_history(random, case, retracts, random.randint(1, 25)))
            if random.random() < 0.8:
                play.merge()
    return play


@pytest.mark.slow(reason="plays histories")
@pytest.mark.parametrize(("catalog_kind", "seed"), by_turns(6))
@pytest.mark.parametrize("engine", ENGINES)
def test_an_explanation_is_the_fold_of_all_records(engine: str, seed: int, site: MergeSite, images: Images) -> None:
    random = Random(f"explained {engine} {seed}")
    played = play(random, site, images, engine, forgets=seed % 2 == 1)
    for key in played.every_key():
        posted = played.of_key(key)
        try:
            explained = played.explain(key)
        except NotFound:
            assert seed % 2
            assert not posted
            continue
        assert explained.exact
        assert explained.start.snapshot is None or seed % 2
        assert explained.row == played.looked_up(key)
        older = len(played.of_key(key, explained.start.snapshot or 0))
        assert places_of(explained) == [one.place for one in posted[older:]]
        check_steps(played, explained, posted, older)
        check_sources(played, explained, posted, older)


def check_steps(played: Play, explained: ExplainedRow, posted: Sequence[Posted], older: int) -> None:
    """After each step the columns hold what the records so far come to."""
    existed = explained.start.row is not None
    for count, step in enumerate(records_of(explained), older + 1):
        row = played.expected(posted[:count])
        assert step.exists is (row is not None), count
        for column in step.columns:
            if row is None:
                assert column.after is None
            elif column.column in row:
                assert column.after == row[column.column], (count, column)
            if existed and step.exists:
                check_reason(played, column, posted[count - 1].change)
            assert not step.exists or not column.reason.endswith("removes the row")
        existed = step.exists


def check_reason(played: Play, column: ColumnStep, change: Change) -> None:
    """What is said of a column of a row that stays is what happened to it."""
    name = next((name for name, called in played.called.items() if called == column.column), column.column)
    if column.ignored or column.reason.endswith(("ignored", "unchanged", "never overwrites")):
        assert column.before == column.after, column
    if column.reason.endswith("taken") and not is_sketch(played.case, name):
        default = played.case.options.get(f"fields.{name}.default-value")
        assert default or column.after == played.shown(name, change.values[name]), column


def check_sources(played: Play, explained: ExplainedRow, posted: Sequence[Posted], older: int) -> None:
    """Another value in a record that a value came from makes it another one, and in any other record it does not. Of
    the ``older`` ones nothing is told but that they are.
    """
    by_place = {one.place: one for one in posted[older:]}
    columns = {called: name for name, called in played.called.items()}
    for column in explained.columns:
        assert not column.start or older
        name = columns.get(column.column, column.column)
        named = [(record.number, record.position) for record in column.records]
        assert all(place in by_place for place in named)
        if is_ordering(played.case, name):
            values = [by_place[place].change.values[name] for place in named]
            assert len(values) <= 1
            assert [played.shown(name, value) for value in values] in ([column.value], [None], [])
            assert values or column.start or column.value is None
        else:
            begun = [one.place for one in posted[:older]] if column.start else []
            check_others(played.case, name, posted, [*named, *begun], older)


def check_others(
    case: TableCase, name: str, posted: Sequence[Posted], named: Sequence[tuple[int, int]], older: int
) -> None:
    kind = dict(case.columns)[name]
    other = next((value for start, value in OTHERS if kind.startswith(start)), None)
    accumulates = oracle.function_of(case, name) not in (None, *REGISTERS)
    row = oracle.fold(case, [one.change for one in posted])
    assert row is not None
    if other is None or is_sketch(case, name):
        return
    for place, one in enumerate(posted):
        value = one.change.values[name]
        if value is None or value == "" or not says(one.change, name):
            continue  # an empty text takes no part in listagg
        changed = [with_other(one.change, name, other), *(it.change for it in posted[place + 1 :])]
        after = oracle.fold(case, [*(it.change for it in posted[:place]), *changed])
        differs = after[name] != row[name]
        if accumulates:
            assert one.place in named or not differs, (name, one)
            sums = oracle.function_of(case, name) == "sum" and place >= older
            assert differs or not sums or one.place not in named, (name, one)
        elif place < older:
            assert one.place in named or not differs, (name, one)
        elif one.change.add:
            assert differs is (one.place in named), (name, one)
        else:
            assert not differs
            assert one.place not in named or row[name] is None


REGISTERS = ("last_value", "last_non_null_value", "first_value", "first_non_null_value", "first_not_null_value")


def with_other(change: Change, name: str, other: Any) -> Change:
    return Change(change.kind, {**change.values, name: other}, change.named)


def is_ordering(case: TableCase, name: str) -> bool:
    """Whether the column's values decide an order."""
    groups = [key.split(".")[1] for key in case.options if key.endswith(".sequence-group")]
    orders = [case.options.get("sequence.field", ""), *groups]
    return oracle.function_of(case, name) in ORDERING or any(name in oracle.names(text) for text in orders)
