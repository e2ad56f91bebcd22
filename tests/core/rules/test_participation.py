"""Which records take part in a rule: the answer and the reason say the same, and every rule asks them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.plan.explaining.explanations import reasons
from app.core.rules.log_records import LogRecords
from app.core.rules.order import Order
from app.core.rules.participation import (
    EVERY_RECORD,
    Condition,
    Group,
    Names,
    Participation,
    accumulated_records,
    kept_records,
)
from app.core.table.records import ARRIVAL_COLUMN, KIND_COLUMN, KINDS_BY_TEXT, Record, RowKind
from tests.core.tables import plan, table

COLUMNS = {"k": "INT", "a": "INT", "g": "INT", "h": "INT"}
A, G, H = (table({}, COLUMNS).by_name[name] for name in ("a", "g", "h"))


TOLD = kept_records(group=Group((G, H), named=True), named=Names((A,), "unchanged", or_retract=True))


def record(kind: str, a: int | None, g: int | None = 1, h: int | None = None, named: str | None = None) -> Record:
    return Record(
        KINDS_BY_TEXT[kind], {"k": 1, "a": a, "g": g, "h": h}, named=None if named is None else frozenset(named)
    )


@pytest.mark.parametrize(
    ("part", "one", "reason"),
    [
        (EVERY_RECORD, record("-D", None, None), None),
        (kept_records(adds_only=True), record("-U", 1), "-U leaves this column unchanged"),
        (kept_records(not_null=A), record("+I", None), "null never overwrites"),
        (kept_records(group=Group((G, H))), record("+I", 1, None, None), "g and h null: the group is not touched"),
        (kept_records(group=Group((G, H))), record("-D", None, None, 1), None),
        (accumulated_records(A), record("+I", None), "null is skipped"),
        (accumulated_records(A), record("-D", 1), None),
        (accumulated_records(A, adds_only=True), record("-D", 1), "-D leaves this column unchanged (ignore-retract)"),
        (accumulated_records(A, group=Group((G,))), record("+U", 1, None), "g null: the group is not touched"),
        (accumulated_records(A, adds_only=True, group=Group((G,))), record("+U", 1), None),
        (TOLD, record("+I", 1, 1, 2, "kagh"), None),
        (TOLD, record("+I", None, 1, 2, "kagh"), None),
        (TOLD, record("+I", None, 1, 2, "kgh"), "a not named: unchanged"),
        (TOLD, record("-U", None, 1, 2, "kgh"), None),
        (TOLD, record("+I", 1, 1, None, "kag"), "h not named: the group is not touched"),
        (TOLD, record("+I", 1, None, None, "kagh"), "g and h null: the group is not touched"),
        (TOLD, record("+I", 1, 1), None),
    ],
)
def test_a_record_takes_part_unless_there_is_a_reason(part: Participation, one: Record, reason: str | None) -> None:
    assert part.reason(one) == reason
    assert part.takes(one) is (reason is None)


class Odd(Condition):
    """Records of odd values: a condition that no rule knows."""

    def met(self, record: Record) -> bool:
        return bool(record.values["a"] % 2)

    def reason(self, record: Record) -> str:
        return f"{record.values['a']} is even"


def log_of(*values: int) -> LogRecords:
    """Return adds of ``values`` for the column ``a``, in this order."""
    names = {name: name for name in COLUMNS}
    own = [{ARRIVAL_COLUMN: place, KIND_COLUMN: int(RowKind.INSERT)} for place in range(len(values))]
    entries = [{**one, **record("+I", value).values} for one, value in zip(own, values, strict=True)]
    return LogRecords(entries, Order(), names)


@pytest.mark.parametrize("function", ["last_non_null_value", "max", "sum", "bool_or", "product", "first_value"])
def test_every_rule_asks_its_participation_and_nothing_else(function: str) -> None:
    """A condition that is added to a rule holds for the fold of one record, of a log, and for the explanation."""
    options = {"merge-engine": "aggregation", "ignore-delete": "true", "fields.a.aggregate-function": function}
    one = plan(options, COLUMNS | ({"a": "BOOLEAN"} if function == "bool_or" else {}))
    rule = one.rule_of["a"]
    narrowed = replace(rule, part=Participation((*rule.part.conditions, Odd())))  # type: ignore[type-var]
    assert narrowed.lift(record("+I", 2)) == narrowed.empty
    assert narrowed.lift(record("+I", 3))["a"] == rule.lift(record("+I", 3))["a"]
    assert narrowed.fold_log(log_of(2)) == narrowed.fold_log(log_of()) == narrowed.empty
    assert narrowed.fold_log(log_of(2, 3))["a"] == rule.fold_log(log_of(3))["a"]
    explained = replace(one, rules=tuple(narrowed if "a" in each.names else each for each in one.rules))
    assert reasons(explained, None, record("+I", 2))["a"].words == "2 is even"
