"""Files written under an older schema, read by tasks of a newer one: columns are found by id."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from app.core.functions.roaring import write_roaring32
from app.core.plan.merging.evolution import remembering, same_fold
from app.core.plan.merging.fold import shown_row
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.schema import TableSchema
from tests import oracle
from tests.builders import schema_of
from tests.histories import ENGINES as ENGINE_NAMES
from tests.histories import examples, random_history, random_table, rewritten, widened_table
from tests.kernel.expected import expected_rows, shown, visible
from tests.oracle import Change
from tests.site import Rows, Site

REPLAYED = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "n",
    "fields.n.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "g",
}
SUMMED = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "sequence.field": "g"}
ENGINES: list[dict[str, str]] = [{}, {"sequence.field": "g"}, {"merge-engine": "partial-update"}, SUMMED, REPLAYED]


def plan_of(options: Mapping[str, str], *columns: tuple[int, str, str]) -> MergePlan:
    fields = [{"id": i, "name": name, "type": kind} for i, name, kind in ((0, "k", "INT"), (1, "g", "INT"), *columns)]
    body = {"fields": fields, "primaryKeys": ["k"], "options": dict(options)}
    return compile_plan(TableSchema.from_json(body))


def renamed(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    return {key.replace(f".{old}.", f".{new}."): new if text == old else text for key, text in options.items()}


def change(kind: str, **values: object) -> Change:
    return Change(kind, {"k": 1, **values})


@pytest.mark.parametrize("options", ENGINES)
def test_staged_batches_of_an_older_schema_are_folded_under_the_new_one(
    options: dict[str, str], tmp_path: Path
) -> None:
    """A column is added, one is dropped and its name taken by another that is renamed."""
    old = plan_of(options, (2, "n", "INT"), (3, "x", "INT"))
    new = plan_of(renamed(options, "n", "x"), (2, "x", "INT"), (4, "more", "STRING"))
    assert same_fold(old.schema, new.schema)
    site = Site(tmp_path, old)
    staged = [site.stage([change("+I", g=1, n=5, x=77)]), site.stage([change("+I", g=2, n=6, x=78)])]
    site.plan = new
    staged.append(site.stage([change("+I", g=2, x=7, more="new")]))
    site.merge_staged(staged)
    summed = "fields.n.aggregate-function" in options
    assert site.rows() == {(1,): {"k": 1, "g": 2, "x": 18 if summed else 7, "more": "new"}}
    lone = Site(tmp_path / "lone", old)
    staged = [lone.stage([change("+I", g=1, n=5, x=77)])]
    lone.plan = new
    lone.merge_staged(staged)
    assert lone.rows() == {(1,): {"k": 1, "g": 1, "x": 5, "more": None}}


def test_the_log_of_a_replayed_row_outlives_new_names_and_columns(tmp_path: Path) -> None:
    site = Site(tmp_path, plan_of(REPLAYED, (2, "n", "INT"), (3, "x", "INT")))
    site.merge([[change("+I", g=1, n=5, x=77)]])
    site.merge([[change("+I", g=3, n=6, x=78)]])
    site.plan = plan_of(renamed(REPLAYED, "n", "x"), (2, "x", "INT"), (4, "more", "STRING"))
    site.merge([[change("+I", g=2, x=7, more="new")]])
    site.compact(0, 3)
    assert site.rows() == {(1,): {"k": 1, "g": 3, "x": 18, "more": "new"}}
    site.merge([[change("-D", g=4, x=None, more=None)]])
    site.compact(0, 2)
    assert site.rows() == {(1,): None}


@pytest.mark.parametrize("compacted", [True, False])
def test_rows_enter_a_meaning_that_comes_back_whether_or_not_they_were_compacted(
    tmp_path: Path, compacted: bool
) -> None:
    of = "fields.n.aggregate-function"
    options = {"merge-engine": "aggregation", "sequence.field": "g", "fields.n.ignore-retract": "true"}
    first, last = (plan_of(options | {of: function}, (2, "n", "INT")) for function in ("first_value", "last_value"))
    site = Site(tmp_path, first)
    site.merge([[change("+I", g=5, n=1)]])
    site.merge([[change("+I", g=9, n=2)]])
    site.plan = compile_plan(remembering(first.schema, last.schema))
    if compacted:
        site.compact(0, 2)
    site.plan = compile_plan(remembering(site.plan.schema, first.schema))
    site.merge([[change("+I", g=7, n=3)]])
    assert (site.rows()[1,] or {})["n"] == 3


@pytest.mark.parametrize("dropped", [True, False])
def test_rows_stay_when_a_column_comes_or_goes_that_refuses_deletes(tmp_path: Path, dropped: bool) -> None:
    without = plan_of(SUMMED, (2, "n", "INT"))
    largest = SUMMED | {"fields.m.aggregate-function": "max"}
    with_it = plan_of(largest, (2, "n", "INT"), (3, "m", "INT"))
    site = Site(tmp_path, with_it if dropped else without)
    site.merge([[change("+I", g=1, n=5, m=1)]])
    site.plan = without if dropped else with_it
    site.merge([[change("+I", g=2, n=6, m=2)]])
    site.compact(0, 2)
    assert (site.rows()[1,] or {})["n"] == 11


@pytest.mark.parametrize("compacted", [True, False])
def test_retracts_still_count_after_a_column_that_refuses_them_is_added(tmp_path: Path, compacted: bool) -> None:
    without = plan_of(SUMMED, (2, "n", "INT"))
    with_it = plan_of(SUMMED | {"fields.m.aggregate-function": "max"}, (2, "n", "INT"), (3, "m", "INT"))
    site = Site(tmp_path, without)
    site.merge([[change("-U", g=1, n=5)]])
    site.plan = compile_plan(remembering(without.schema, with_it.schema))
    if compacted:
        site.compact(0, 1)
    assert site.rows() == {(1,): None}
    site.merge([[change("+I", g=1, n=20, m=1)]])
    site.compact(0, 2)
    assert (site.rows()[1,] or {})["n"] == 15


@pytest.mark.parametrize("compacted", [True, False])
def test_a_log_outlives_the_column_that_refused_retracts(tmp_path: Path, compacted: bool) -> None:
    listed = {**SUMMED, "fields.n.aggregate-function": "collect"}
    with_it = plan_of(listed | {"fields.m.aggregate-function": "max"}, (2, "n", "ARRAY<INT>"), (3, "m", "INT"))
    site = Site(tmp_path, with_it)
    site.merge([[change("+I", g=1, n=[1], m=1), change("+I", g=3, n=[3], m=1)]])
    site.plan = plan_of(listed, (2, "n", "ARRAY<INT>"))
    if compacted:
        site.compact(0, 1)
    assert (site.rows()[1,] or {})["n"] == [1, 3]
    site.merge([[change("+I", g=2, n=[2])]])
    assert (site.rows()[1,] or {})["n"] == [1, 2, 3]
    site.merge([[change("-U", g=4, n=[1])]])
    site.compact(0, 2)
    assert (site.rows()[1,] or {})["n"] == [2, 3]


GROUPED = {"merge-engine": "partial-update", "fields.g.sequence-group": "n"}


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "staged"])
@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("ignored", [{}, {"fields.m.ignore-retract": "true"}])
@pytest.mark.parametrize(
    ("function", "options", "late"),
    [("last_value", SUMMED, 3), ("last_value", GROUPED, 3), ("first_value", SUMMED, 7), ("first_value", GROUPED, 7)],
)
def test_records_read_null_in_a_column_that_came_after_them(
    tmp_path: Path,
    function: str,
    options: dict[str, str],
    late: int,
    ignored: dict[str, str],
    compacted: bool,
    merged: bool,
) -> None:
    """Null is their value wherever null counts, whether they were merged before the column came or after."""
    old = plan_of(options, (2, "n", "INT"))
    with_it = {**options, "fields.m.aggregate-function": function, **ignored}
    if options is GROUPED:
        with_it["fields.g.sequence-group"] = "n,m"
    new = plan_of(with_it, (2, "n", "INT"), (3, "m", "INT"))
    site = Site(tmp_path, old)
    staged = [site.stage([change("+I", g=5, n=1)])]
    if merged:
        site.merge_staged(staged)
        staged = []
    site.plan = new
    site.merge_staged([*staged, site.stage([change("+I", g=late, n=1, m=4)])])
    if compacted:
        site.compact(0, 2)
    assert (site.rows()[1,] or {})["m"] is None


@pytest.mark.parametrize("since", [True, False])
def test_a_record_that_retracted_does_not_read_null_in_a_later_column_that_ignores_retracts(
    tmp_path: Path, since: bool
) -> None:
    arrived = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    first = arrived | {"fields.m.aggregate-function": "first_value", "fields.m.ignore-retract": "true"}
    site = Site(tmp_path, plan_of(arrived, (2, "n", "INT")))
    site.merge([[change("+I" if since else "-U", g=1, n=1)]])
    site.plan = plan_of(first, (2, "n", "INT"), (3, "m", "INT"))
    site.merge([[change("+I", g=1, n=5, m=4)]])
    assert (site.rows()[1,] or {})["m"] == (None if since else 4)


def test_bitmaps_of_replayed_rows_are_united(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        plan_of(
            {**REPLAYED, "fields.n.aggregate-function": "rbm32", "fields.n.ignore-retract": "true"}, (2, "n", "BYTES")
        ),
    )
    one, two, three = (write_roaring32(BitMap(members)) for members in ([1, 2], [2, 3], [9]))
    site.merge([[change("+I", g=1, n=one), change("+I", g=3, n=None), change("+I", g=2, n=two)]])
    assert [state["n"] for state in site.states(site.runs[0])] == [write_roaring32(BitMap([1, 2, 3]))]
    site.merge([[change("-D", g=4, n=None), change("+I", g=5, n=three)]])
    site.compact(0, 2)
    assert [state["n"] for state in site.states(site.runs[0])] == [three]


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@settings(max_examples=examples(12))
@given(seed=st.integers(0, 2**32))
def test_runs_of_narrower_types_are_compacted_with_those_of_wider_ones(
    engine: str, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    narrow, retracts = random_table(random, engine, times=2)
    wide, written = widened_table(random, narrow)
    note(f"{narrow} -> {wide}")
    history = random_history(random, narrow, retracts, 100)
    rewritten_history = [rewritten(change, written) for change in history]
    expected = visible(expected_rows(wide, rewritten_history))
    site = Site(tmp_path_factory.mktemp("warehouse"), compile_plan(schema_of(narrow)))
    site.merge([history[:30]])
    site.merge([history[30:60]])
    site.plan = compile_plan(schema_of(wide))
    site.merge([rewritten_history[60:]])
    assert shown(wide, site) == expected
    site.compact(*random.choice([(1, 3), (0, 2)]))
    assert shown(wide, site) == expected, "after a compaction of runs of narrower types"
    site.compact(0, 2)
    assert shown(wide, site) == expected, "after a full compaction"
    assert {k: oracle.meant(wide, r) for k, r in visible(stored_rows(site)).items()} == expected, "as stored"


def stored_rows(site: Site) -> Rows:
    """The visible columns of the live rows of the one run, as the kernel wrote them."""
    plan = site.plan
    states = list(site.states(site.runs[0]))
    keys = [tuple(state[name] for name in plan.schema.primary_key) for state in states]
    return {k: shown_row(plan, s) if plan.row.is_live(s) else None for k, s in zip(keys, states, strict=True)}


@pytest.mark.parametrize(("wider", "largest"), [("BIGINT", 2**32 - 2), ("DECIMAL(10, 0)", Decimal(2**32 - 2))])
def test_a_total_that_left_the_old_type_is_stored_in_the_wider_one(tmp_path: Path, wider: str, largest: object) -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    site = Site(tmp_path, plan_of(options, (2, "n", "INT")))
    site.merge([[change("+I", g=1, n=2**31 - 1), change("+I", g=1, n=2**31 - 1)]])
    site.plan = plan_of(options, (2, "n", wider))
    site.merge([[Change("+I", {"k": 2, "g": 1, "n": None})]])
    site.compact(0, 2)
    assert [state["n"] for state in site.states(site.runs[0]) if state["k"] == 1] == [largest]


BY_SEQUENCE = {
    "merge-engine": "aggregation",
    "sequence.field": "g",
    "aggregation.remove-record-on-delete": "true",
    "fields.n.aggregate-function": "sum",
}


@pytest.mark.parametrize("options", [BY_SEQUENCE, REPLAYED])
def test_a_deleted_row_stays_deleted_against_older_records_when_a_function_changes(
    options: dict[str, str], tmp_path: Path
) -> None:
    site = Site(tmp_path, plan_of(options, (2, "n", "INT")))
    site.merge([[change("+I", g=1, n=5), change("-D", g=9, n=None)]])
    site.plan = plan_of(options | {"fields.n.aggregate-function": "last_value"}, (2, "n", "BIGINT"))
    site.merge([[change("+I", g=7, n=6)]])
    assert site.rows() == {(1,): None}
    site.compact(0, 2)
    assert site.rows() == {(1,): None}
    site.merge([[change("+I", g=10, n=7)]])
    site.compact(0, 2)
    assert site.rows() == {(1,): {"k": 1, "g": 10, "n": 7}}
