"""The order of records: sequence fields by value, nulls first, padding, then arrival."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.rules.order import Floor, Order, OrderField
from app.core.table.schema import Column
from app.core.types.numbers import float_rank
from app.core.types.parser import parse_type
from tests.core.strategies import SCALAR_TYPES, values
from tests.core.tables import plan

NAN, INF = math.nan, math.inf

# Values of a type in their order.
SORTED: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "INT": [-(2**31), -1, 0, 1, 2**31 - 1],
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "FLOAT": [-INF, -1.5, -0.0, 0.0, 1e-40, 1.5, INF, NAN],
    "DOUBLE": [-INF, -1e308, -5e-324, -0.0, 0.0, 5e-324, 1e308, INF, NAN],
    "DECIMAL(38, 2)": [Decimal(text) for text in ("-" + "9" * 36 + ".99", "-0.01", "0.00", "0.10", "9.00")],
    "STRING": ["", "A", "a", "aa", "b", "z", "\u007f", "\u0080", "é", "\ud7ff", "\uffff", "𝄞"],
    "VARBINARY(4)": [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    "TIME(3)": [0, 1, 86_399_999],
    "TIMESTAMP(6)": [
        datetime(1, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1),
        datetime(1970, 1, 1, 0, 0, 0, 1),
    ],
    "TIMESTAMP_LTZ(6)": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
}


def field(kind: str, **settings: Any) -> OrderField:
    return OrderField(Column(0, "s", parse_type(kind)), **settings)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", SORTED)
def test_values_are_ordered_by_value_or_the_other_way_round_and_null_is_the_smallest(
    kind: str, descending: bool
) -> None:
    ordered = SORTED[kind][::-1] if descending else SORTED[kind]
    ranks = [field(kind, descending=descending).rank(value) for value in (None, *ordered)]
    assert all(smaller < larger for smaller, larger in itertools.combinations(ranks, 2))


@given(SCALAR_TYPES.flatmap(lambda t: st.tuples(st.just(t), values(t), values(t))))
def test_the_order_of_any_two_values_is_turned_round_by_descending(typed: tuple[Any, Any, Any]) -> None:
    data_type, a, b = typed
    assume(a is not None and b is not None)
    up, down = (OrderField(Column(0, "s", data_type), descending=descending) for descending in (False, True))
    assert (up.rank(a) < up.rank(b)) is (down.rank(b) < down.rank(a))
    assert (up.rank(a) == up.rank(b)) is (down.rank(a) == down.rank(b))


@given(st.text(), st.text())
def test_texts_are_ordered_by_their_bytes(a: str, b: str) -> None:
    one = field("STRING")
    assert (one.rank(a) < one.rank(b)) is (a.encode("utf-8", "surrogatepass") < b.encode("utf-8", "surrogatepass"))


@given(st.floats(), st.floats())
def test_floats_are_ordered_in_total_order(a: float, b: float) -> None:
    def key(value: float) -> tuple[bool, float, float]:
        return (value != value, 0.0 if value != value else value, 0.0 if value != value else math.copysign(1, value))

    assert (float_rank(a) < float_rank(b)) is (key(a) < key(b))


def test_every_nan_is_the_same_and_the_largest() -> None:
    assert float_rank(NAN) == float_rank(-NAN) > float_rank(INF)


def test_fields_are_compared_in_turn_and_a_null_part_is_the_smallest() -> None:
    order = Order((OrderField(Column(0, "a", parse_type("INT"))), OrderField(Column(1, "b", parse_type("INT")))))
    pairs = [(None, None), (None, 0), (None, 9), (1, None), (1, 1), (2, None)]
    ranks = [order.rank({"a": a, "b": b}, add=True) for a, b in pairs]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(pairs)


def test_then_breaks_ties_by_the_later_order() -> None:
    a, b = (OrderField(Column(at, name, parse_type("INT"))) for at, name in enumerate("ab"))
    both = Order((a,)).then(Order((b,), flag=True))
    assert both == Order((a, b), flag=True)
    assert Order().then(Order()).by_arrival


@pytest.mark.parametrize(("order", "by_arrival"), [(Order(), True), (Order(flag=True), False)])
def test_an_order_without_fields_and_flag_is_arrival(order: Order, by_arrival: bool) -> None:
    assert order.by_arrival is by_arrival
    assert not Order((field("INT"),)).by_arrival


def test_the_flag_puts_retracts_before_adds_of_the_same_sequence() -> None:
    order = Order((field("INT"),), flag=True)
    assert order.rank({"s": 1}, add=False) < order.rank({"s": 1}, add=True) < order.rank({"s": 2}, add=False)
    plain = Order((field("INT"),))
    assert plain.rank({"s": 1}, add=False) == plain.rank({"s": 1}, add=True)


AT = datetime(2024, 1, 31, 10, 0, 5, 123_456)


@pytest.mark.parametrize("kind", ["TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"])
@pytest.mark.parametrize(
    ("floor", "same", "other"),
    [
        (Floor.SECOND, [AT.replace(microsecond=0), AT.replace(microsecond=999_999)], AT + timedelta(seconds=1)),
        (
            Floor.MILLISECOND,
            [AT.replace(microsecond=123_000), AT.replace(microsecond=123_999)],
            AT + timedelta(microseconds=544),
        ),
        (Floor.SECOND, [datetime(1969, 12, 31, 10, 0, 5)], datetime(1969, 12, 31, 10, 0, 4, 999_999)),
    ],
)
def test_a_floor_leaves_arrival_to_decide_inside_its_unit(
    kind: str, floor: Floor, same: list[datetime], other: datetime
) -> None:
    zone = UTC if "LTZ" in kind else None
    one = field(kind, floor=floor, integral=True)
    ranks = {one.rank(moment.replace(tzinfo=zone)) for moment in same}
    assert len(ranks) == 1
    assert one.rank(other.replace(tzinfo=zone)) not in ranks


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DATE"])
def test_a_floor_takes_numbers_and_dates_to_be_in_its_unit_already(kind: str) -> None:
    one = field(kind, floor=Floor.SECOND, integral=True)
    ranks = [one.rank(value) for value in SORTED[kind]]
    assert len(set(ranks)) == len(ranks)


@pytest.mark.parametrize(
    ("kind", "equal"),
    [
        ("DECIMAL(5, 2)", [Decimal("1.00"), Decimal("1.99")]),
        ("DECIMAL(5, 2)", [Decimal("-0.99"), Decimal("0.00"), Decimal("0.99")]),
        ("DOUBLE", [1.0, 1.75]),
        ("DOUBLE", [-0.5, -0.0, 0.0, 0.5]),
        ("FLOAT", [-1.5, -1.0]),
        ("STRING", ["7", "+7", "007"]),
        ("CHAR(3)", ["-0", "0"]),
    ],
)
def test_padding_reads_a_sequence_as_a_whole_number_cut_towards_zero(kind: str, equal: list[Any]) -> None:
    one = field(kind, integral=True)
    assert len({one.rank(value) for value in equal}) == 1


def test_padding_orders_text_as_numbers() -> None:
    one = field("STRING", integral=True)
    texts = ["-10", "-9", "0", "9", "10", "9" * 37]
    assert [one.rank(t) for t in texts] == sorted(one.rank(t) for t in texts)
    assert field("STRING").rank("10") < field("STRING").rank("9"), "without padding they are text"


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ({}, Order()),
        ({"sequence.field": "k"}, Order()),  # a key column never differs
        ({"sequence.auto-padding": "row-kind-flag"}, (Order, True, None)),
        ({"sequence.auto-padding": "second-to-micro"}, (Order, False, Floor.SECOND)),
        ({"sequence.auto-padding": "millis-to-micro"}, (Order, False, Floor.MILLISECOND)),
        ({"sequence.auto-padding": "second-to-micro,row-kind-flag"}, (Order, False, Floor.SECOND)),
        ({"sequence.auto-padding": "millis-to-micro,row-kind-flag"}, (Order, False, Floor.MILLISECOND)),
    ],
)
def test_options_say_the_order_and_with_a_unit_arrival_comes_before_the_flag(
    options: dict[str, str], order: Any
) -> None:
    made = plan(options if isinstance(order, Order) else options | {"sequence.field": "t"}).order
    if isinstance(order, Order):
        assert made == order
    else:
        _, flag, floor = order
        assert (made.flag, made.fields[0].floor, made.fields[0].integral) == (flag, floor, True)


def test_one_sort_order_holds_for_all_sequence_fields() -> None:
    made = plan({"sequence.field": "a,t", "sequence.field.sort-order": "descending"}).order
    assert [(f.column.name, f.descending) for f in made.fields] == [("a", True), ("t", True)]
