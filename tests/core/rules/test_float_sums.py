"""Sums of FLOAT and DOUBLE are exact and rounded once, whatever the order, the cut and the tree of combines."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.core.plan.merging.evolution import converted, same_fold
from app.core.plan.merging.fold import combine, combine_all, lift
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.table.records import Record, RowKind
from tests.builders import schema_of
from tests.oracle import Change, TableCase, fold

INF, NAN = math.inf, math.nan
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
REMOVES = {**SUM, "aggregation.remove-record-on-delete": "true", "sequence.field": "s"}
LARGEST = {"DOUBLE": 1.7976931348623157e308, "FLOAT": 3.4028234663852886e38}
HARD = [1e16, -1e16, 1.0, -1.0, 0.0, -0.0, 0.1, 5e-324, -5e-324, 2.0**-149, 2.0**-24, 2.0**-60, INF, -INF, NAN]


def single(value: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(INF, value)
    return rounded


def values_of(data_type: str) -> st.SearchStrategy[float]:
    hard = [*HARD, LARGEST[data_type], -LARGEST[data_type]]
    if data_type == "FLOAT":
        return st.one_of(st.sampled_from([*map(single, hard)]), st.floats(width=32))
    return st.one_of(st.sampled_from(hard), st.floats())


def histories(data_type: str) -> st.SearchStrategy[list[tuple[float, bool]]]:
    signed = st.tuples(values_of(data_type), st.booleans())
    return st.lists(signed, min_size=1, max_size=12).filter(lambda history: any(add for _, add in history))


def bits(value: Any) -> Any:
    """What tells any two floats apart; NaN is one value."""
    return None if value is None else "NaN" if value != value else struct.pack(">d", value)


def case_of(data_type: str, options: Mapping[str, str] = SUM) -> TableCase:
    return TableCase((("k", "INT"), ("s", "INT"), ("v", data_type)), ("k",), options)


def plan_of(data_type: str, options: Mapping[str, str] = SUM) -> MergePlan:
    return compile_plan(schema_of(case_of(data_type, options)))


def lifted(plan: MergePlan, history: Sequence[tuple[float, bool]]) -> list[Mapping[str, Any]]:
    kinds = {True: RowKind.INSERT, False: RowKind.UPDATE_BEFORE}
    return [
        lift(plan, Record(kinds[add], {"k": 1, "s": 1, "v": value}, arrival))
        for arrival, (value, add) in enumerate(history)
    ]


def summed(data_type: str, history: Sequence[tuple[float, bool]]) -> Any:
    """The sum of the independent fold."""
    changes = [Change("+I" if add else "-U", {"k": 1, "s": 1, "v": value}) for value, add in history]
    row = fold(case_of(data_type), changes)
    return None if row is None else row["v"]


def in_a_tree(plan: MergePlan, states: list[Mapping[str, Any]], draw: st.DataObject) -> Mapping[str, Any]:
    while len(states) > 1:
        place = draw.draw(st.integers(0, len(states) - 2))
        states[place : place + 2] = [combine(plan, states[place], states[place + 1])]
    return states[0]


@pytest.mark.parametrize("data_type", ["DOUBLE", "FLOAT"])
@given(st.data())
def test_any_order_any_cut_and_any_tree_of_combines_give_the_same_bits(data_type: str, data: st.DataObject) -> None:
    plan, history = plan_of(data_type), data.draw(histories(data_type))
    shuffled = data.draw(st.permutations(history))
    [rule] = [rule for rule in plan.rules if "v" in rule.names]
    cut = data.draw(st.integers(0, len(history)))
    records = [Record(RowKind.INSERT if add else RowKind.UPDATE_BEFORE, {"k": 1, "s": 1, "v": v}) for v, add in history]
    parts = [rule.fold_records(part) for part in (records[:cut], records[cut:]) if part]
    sums = [
        combine_all(plan, lifted(plan, history)),
        in_a_tree(plan, lifted(plan, history), data),
        in_a_tree(plan, lifted(plan, shuffled), data),
        rule.combine_all(parts),
    ]
    expected = bits(summed(data_type, history))
    assert [bits(state["v"]) for state in sums if state is not None] == [expected] * 4
    rests = [[*map(bits, state["_kf_rest_2"] or ())] for state in sums if state is not None]
    assert rests == [rests[0]] * 4, "one sum is written in one way"


@pytest.mark.parametrize(
    ("history", "number", "rest"),
    [
        ([(1e16, True), (1.0, True)], 1e16, [1.0]),
        ([(1e16, True), (1.0, True), (1.0, True)], 1e16 + 2, None),
        ([(1e16, True), (1.0, True), (1e16, False)], 1.0, None),
        ([(0.1, True), (0.2, True)], 0.30000000000000004, [-2.7755575615628914e-17]),
        ([(1.0, True), (5e-324, True)], 1.0, [5e-324]),
        ([(1.0, True), (1.0, False)], 0.0, None),
        ([(-0.0, True), (-0.0, True)], -0.0, None),
        ([(-0.0, True), (0.0, True)], 0.0, None),
        ([(-0.0, True), (0.0, False)], 0.0, None),
        ([(LARGEST["DOUBLE"], True), (LARGEST["DOUBLE"], True)], INF, [0, 0, 0, *[LARGEST["DOUBLE"]] * 2]),
        ([(LARGEST["DOUBLE"], True)] * 2 + [(LARGEST["DOUBLE"], False)], LARGEST["DOUBLE"], None),
        ([(INF, True)], INF, None),
        ([(INF, True), (1.0, True)], INF, [1, 0, 0, 1]),
        ([(INF, True), (INF, True)], INF, [2, 0, 0]),
        ([(INF, True), (1.0, True), (INF, False)], 1.0, None),
        ([(INF, False), (1.0, True)], -INF, [-1, 0, 0, 1]),
        ([(INF, True), (-INF, True)], NAN, [1, 1, 0]),
        ([(INF, True), (-INF, True), (INF, False)], -INF, None),
        ([(NAN, True), (2.0, True)], NAN, [0, 0, 1, 2]),
        ([(NAN, True), (2.0, True), (NAN, False)], 2.0, None),
        ([(NAN, False), (2.0, True)], NAN, [0, 0, -1, 2]),
    ],
)
def test_a_state_holds_the_rest_and_nothing_where_there_is_none(
    history: list[tuple[float, bool]], number: float, rest: list[float] | None
) -> None:
    plan = plan_of("DOUBLE")
    state = combine_all(plan, lifted(plan, history))
    assert (bits(state["v"]), state["_kf_rest_2"]) == (bits(number), rest)


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([1.0, 2.0**-24], 1.0),
        ([1.0, 2.0**-24, 2.0**-60], 1.0 + 2.0**-23),  # rounded to DOUBLE before, it would be 1
        ([1.0, 2.0**-24, -(2.0**-60)], 1.0),
        ([1.0 + 2.0**-23, 2.0**-24, -(2.0**-60)], 1.0 + 2.0**-23),
        ([LARGEST["FLOAT"], 2.0**103], INF),
        ([LARGEST["FLOAT"], 2.0**103, -(2.0**-149)], LARGEST["FLOAT"]),
        ([2.0**-149, 2.0**-149], 2.0**-148),
    ],
)
def test_a_sum_of_float_is_rounded_once(values: list[float], number: float) -> None:
    plan = plan_of("FLOAT")
    state = combine_all(plan, lifted(plan, [(value, True) for value in values]))
    assert bits(state["v"]) == bits(number)
    wide = converted(state, plan, plan_of("DOUBLE"))
    assert bits(wide["v"]) == bits(summed("DOUBLE", [(value, True) for value in values]))


@given(histories("FLOAT"))
@example([(1.0, True), (2.0**-60, True)])
@example([(single(0.1), True), (single(0.2), True)])
def test_a_widened_sum_is_the_one_of_the_wider_type(history: list[tuple[float, bool]]) -> None:
    narrow, wide = plan_of("FLOAT"), plan_of("DOUBLE")
    state, own = combine_all(narrow, lifted(narrow, history)), combine_all(wide, lifted(wide, history))
    assert state is not None
    entered = converted(state, narrow, wide)
    assert [bits(entered["v"]), entered["_kf_rest_2"] or []] == [bits(own["v"]), own["_kf_rest_2"] or []]


def test_a_sum_of_whole_numbers_goes_on_in_a_column_of_double() -> None:
    narrow, wide = plan_of("INT"), plan_of("DOUBLE")
    assert same_fold(narrow.schema, wide.schema)
    state = combine_all(narrow, [{**narrow.rules[1].empty, **one} for one in lifted_whole(narrow)])
    assert (state["v"], state["_kf_carry_2"]) == (None, 2**62 + 1)
    entered = converted(state, narrow, wide)
    assert (entered["v"], entered["_kf_rest_2"]) == (2.0**62, [1.0])


def lifted_whole(plan: MergePlan) -> list[Mapping[str, Any]]:
    one = lift(plan, Record(RowKind.INSERT, {"k": 1, "s": 1, "v": 1}))
    return [one, {**one, "v": None, "_kf_carry_2": 2**62}]


def test_a_run_of_before_has_no_rest_and_is_read_as_exact() -> None:
    plan = plan_of("DOUBLE")
    old = {name: value for name, value in lifted(plan, [(0.1, True)])[0].items() if name != "_kf_rest_2"}
    both = combine_all(plan, [old, *lifted(plan, [(1e16, True)])])
    assert both["v"] == 1e16
    assert math.fsum([both["v"], *both["_kf_rest_2"]]) == math.fsum([1e16, 0.1])
    alone = combine_all(plan, [old])
    assert alone["v"] == 0.1


@pytest.mark.parametrize("data_type", ["DOUBLE", "FLOAT"])
@given(st.data())
def test_a_row_that_is_replayed_sums_what_its_last_removal_left(data_type: str, data: st.DataObject) -> None:
    plan, history = plan_of(data_type, REMOVES), data.draw(histories(data_type))
    sequences = data.draw(st.lists(st.integers(0, 9), min_size=len(history), max_size=len(history)))
    changes = [
        Change("+I" if add else data.draw(st.sampled_from(["-U", "-D"])), {"k": 1, "s": s, "v": value})
        for (value, add), s in zip(history, sequences, strict=True)
    ]
    kinds = {kind.text: kind for kind in RowKind}
    states: list[Mapping[str, Any]] = [
        lift(plan, Record(kinds[c.kind], c.values, arrival)) for arrival, c in enumerate(changes)
    ]
    state, row = in_a_tree(plan, states, data), fold(case_of(data_type, REMOVES), changes)
    assert bits(state["v"] if plan.row.is_live(state) else None) == bits(row["v"] if row else None)


def test_sums_of_decimals_have_no_rest() -> None:
    assert "_kf_rest_2" not in {name for name, _ in plan_of("DECIMAL(6, 2)").state_columns}
