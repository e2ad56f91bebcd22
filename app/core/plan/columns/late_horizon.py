"""``sequence.late-horizon``: which logs of a table it bounds, what contradicts it, and where it has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.core.errors import FaultCode, Violation
from app.core.rules.lateness import Horizon, Lateness, horizon_text
from app.core.rules.order import Order
from app.core.rules.replays.replay import Replay
from app.core.rules.rule import Rule
from app.core.rules.stepwise import Stepwise
from app.core.table.options.entries import MergeEngine, SortOrder
from app.core.table.options.parsed import TableOptions, option_violation
from app.core.table.schema import TableSchema

KEY = "sequence.late-horizon"


def with_horizon(rules: Sequence[Rule], horizon: Horizon | None) -> tuple[Rule, ...]:
    """Return the rules of a table's columns with the horizon in those that keep a log which it bounds."""
    return tuple(_bounded(rule, horizon) for rule in rules) if horizon is not None else tuple(rules)


def _bounded(rule: Rule, horizon: Horizon) -> Rule:
    if isinstance(rule, (Replay, Stepwise)):
        return replace(rule, late=_lateness(rule.order, horizon))
    return rule


def _lateness(order: Order, horizon: Horizon) -> Lateness | None:
    first = next(iter(order.fields), None)
    if first is None or first.descending or first.floor or first.integral or order.flag:
        return None
    return Lateness(first.column, horizon) if Lateness.measures(first.column.type, horizon) else None


def check_horizon(schema: TableSchema, options: TableOptions) -> Iterator[Violation]:
    """Yield a violation unless the horizon can be measured along the first sequence field, upwards, as written."""
    horizon = options[KEY]
    if horizon is None or options.engine is MergeEngine.FIRST_ROW:
        return
    names = [name for name in options["sequence.field"] if name not in schema.primary_key]
    if options["sequence.auto-padding"]:
        yield _contradiction("sequence.auto-padding cuts the times that the horizon measures", "remove one of the two")
    if names and options["sequence.field.sort-order"] is SortOrder.DESCENDING:
        yield _contradiction("a descending sequence has no late records", "use ascending, or remove the horizon")
    if names and names[0] in schema.by_name and not Lateness.measures(schema.by_name[names[0]].type, horizon):
        message = (
            f"{names[0]!r} is {schema.by_name[names[0]].type.base_sql}, which {horizon_text(horizon)} cannot measure"
        )
        fix = "write a whole number if the field is one, a time with its unit (7 d) if it is a DATE or TIMESTAMP"
        yield option_violation(KEY, FaultCode.ILLEGAL_ORDER_TYPE, message, fix, names[0])


def _contradiction(message: str, fix: str) -> Violation:
    return option_violation(KEY, FaultCode.CONTRADICTING_OPTIONS, message, fix)


def horizon_warnings(rules: Sequence[Rule], horizon: Horizon | None) -> Iterator[Violation]:
    """Yield a warning for each log that the horizon does not bound; ``rules`` are those of a compiled plan."""
    if horizon is None:
        return
    if all(rule.late is None for rule in rules if isinstance(rule, (Replay, Stepwise))):
        message = "the table keeps no log that the horizon bounds: the option has no effect"
        yield option_violation(KEY, FaultCode.OPTION_WITHOUT_EFFECT, message, "remove it")
    inside = [inner for rule in rules if isinstance(rule, Replay) for inner in rule.rules]
    for rule in (*rules, *inside):
        if isinstance(rule, Stepwise) and rule.keeps_log and rule.late is None:
            first = rule.order.fields[0].column
            why = "rows can be removed" if rule in inside else f"{first.name!r} is {first.type.base_sql}"
            message = f"the log of {rule.column.name!r} is kept forever: {why}"
            fix = "order the column by a field that the horizon measures, in a table without removals; or keep the log"
            yield option_violation(KEY, FaultCode.OPTION_WITHOUT_EFFECT, message, fix)


HORIZON_CHECKS = (check_horizon,)
