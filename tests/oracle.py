"""The merge semantics (docs/semantics.md) restated, independently of ``app.core``: one fold, record by record.

It takes a table as the conformance cases write it, sorts records of Python values into merge order, and folds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from tests.oracle_collections import COLLECTIONS
from tests.oracle_floats import exact_sum
from tests.oracle_sketches import MEANINGS

ADDS = ("+I", "+U")
Values = dict[str, Any]


@dataclass(frozen=True)
class TableCase:
    """A table: (name, type) of each column, key column names, options."""

    columns: tuple[tuple[str, str], ...]
    primary_key: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> list[str]:
        """Names of the columns outside the key."""
        return [name for name, _ in self.columns if name not in self.primary_key]


@dataclass(frozen=True)
class Change:
    """One record: kind, values by column; its place in the history is its arrival, which ``fold`` writes down.

    ``named``: the columns that it names, None for all; the others are null.
    """

    kind: str
    values: Mapping[str, Any]
    named: frozenset[str] | None = None
    at: int = field(default=0, compare=False)

    @property
    def add(self) -> bool:
        """Whether it adds."""
        return self.kind in ADDS


def says(change: Change, column: str) -> bool:
    """Whether the record names the column."""
    return change.named is None or column in change.named


def names(text: str) -> list[str]:
    """A comma-separated option value."""
    return [name.strip() for name in text.split(",") if name.strip()]


class _Down:
    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Down) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and bool(self.key == other.key)


def sortable(value: Any) -> tuple[Any, ...]:
    """Nulls first; -0.0 before 0.0; NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    return (1, value)


def merge_order(table: TableCase, history: Sequence[Change]) -> list[int]:
    """Positions of the history's records, in merge order."""
    fields = names(table.options.get("sequence.field", ""))
    down = table.options.get("sequence.field.sort-order") == "descending"
    padding = names(table.options.get("sequence.auto-padding", ""))

    def one(value: Any) -> Any:
        if value is not None and hasattr(value, "microsecond"):
            if "second-to-micro" in padding:
                value = value.replace(microsecond=0)
            if "millis-to-micro" in padding:
                value = value.replace(microsecond=value.microsecond // 1000 * 1000)
        key = sortable(value)
        return key if not down or value is None else (key[0], _Down(key[1:]))

    def key(position: int) -> tuple[Any, ...]:
        change = history[position]
        flag = (change.add,) if padding == ["row-kind-flag"] else ()
        return (*(one(change.values[name]) for name in fields), *flag, position)

    return sorted(range(len(history)), key=key)


Step = Callable[[Any, Any, bool], Any]
EMPTY = object()


def _sum(acc: Any, value: Any, add: bool) -> Any:
    if value is None:
        return acc
    signed = value if add else -value
    return signed if acc is EMPTY or acc is None else acc + signed


def _extreme(better: Callable[[Any, Any], bool]) -> Step:
    def step(acc: Any, value: Any, add: bool) -> Any:
        if value is None:
            return acc
        return value if acc is EMPTY or acc is None or better(sortable(value), sortable(acc)) else acc

    return step


def _first(acc: Any, value: Any, add: bool) -> Any:
    return value if acc is EMPTY else acc


def _first_non_null(acc: Any, value: Any, add: bool) -> Any:
    return value if acc is EMPTY and value is not None else acc


def _last(acc: Any, value: Any, add: bool) -> Any:
    return value if add else None


def _last_non_null(acc: Any, value: Any, add: bool) -> Any:
    return acc if value is None else value if add else None


def _logical(join: Callable[[Any, Any], Any]) -> Step:
    def step(acc: Any, value: Any, add: bool) -> Any:
        return acc if value is None else value if acc is EMPTY else join(acc, value)

    return step


def _gathered(acc: Any, value: Any, add: bool) -> Any:
    """All values so far; ``_run`` tells what their union means."""
    if value is None:
        return acc
    return {value} if acc is EMPTY else acc | {value}


STEPS: Mapping[str, Step] = {
    "sum": _sum,
    "max": _extreme(lambda new, old: new > old),
    "min": _extreme(lambda new, old: new < old),
    "last_value": _last,
    "last_non_null_value": _last_non_null,
    "first_value": _first,
    "first_non_null_value": _first_non_null,
    "first_not_null_value": _first_non_null,
    "bool_and": _logical(lambda a, b: a and b),
    "bool_or": _logical(lambda a, b: a or b),
    **dict.fromkeys(MEANINGS, _gathered),
}


def meant(table: TableCase, row: Mapping[str, Any] | None) -> Values | None:
    """A row that was found, with bitmaps and sketches as what they say, like the rows of ``fold``."""
    if row is None:
        return None
    functions = {name: function_of(table, name) or "" for name in row}
    return {
        name: value if value is None or functions[name] not in MEANINGS else MEANINGS[functions[name]]([value])
        for name, value in row.items()
    }


def fold(table: TableCase, history: Sequence[Change]) -> Values | None:
    """The row after the whole history of one key, None if there is none."""
    options = table.options
    kept = [replace(c, at=at) for at, c in enumerate(history) if c.add or not dropped(options, c)]
    engine = options.get("merge-engine", "deduplicate")
    if "partial-update.remove-record-on-sequence-group" in options or _removes(options, engine):
        # One log holds the whole row.
        kept = on_time(table, names(options.get("sequence.field", ""))[:1], kept)
        options = {key: text for key, text in options.items() if key != "sequence.late-horizon"}
        table = replace(table, options=options)
    order = merge_order(table, kept)
    if engine == "first-row":
        return dict(kept[0].values) if kept else None
    if engine == "deduplicate":
        latest = kept[order[-1]] if order else None
        return dict(latest.values) if latest and latest.add else None
    if "partial-update.remove-record-on-sequence-group" in options:
        return _removing_groups(table, kept, order)
    if _removes(options, engine):
        deletes = [place for place, position in enumerate(order) if kept[position].kind == "-D"]
        order = order[deletes[-1] + 1 :] if deletes else order
        if engine == "partial-update":
            order = [position for position in order if kept[position].add]
    if not any(kept[position].add for position in order):
        return None
    fold_columns = _partial_update if engine == "partial-update" else _aggregation
    row = fold_columns(table, kept, order)
    keys = {name: kept[0].values[name] for name in table.primary_key}
    return {name: {**keys, **row}[name] for name, _ in table.columns}


def _removes(options: Mapping[str, str], engine: str) -> bool:
    return options.get(f"{engine}.remove-record-on-delete") == "true"


def on_time(table: TableCase, first: Sequence[str], changes: Sequence[Change]) -> list[Change]:
    """``changes`` without those that ``sequence.late-horizon`` leaves out of a log that column ``first`` orders."""
    horizon = table.options.get("sequence.late-horizon")
    data_type = dict(table.columns)[first[0]] if first else ""
    times = data_type.startswith(("DATE", "TIMESTAMP"))
    if horizon is None or times is horizon.isdigit() or not (times or data_type.endswith("INT")):
        return list(changes)

    def late(change: Change) -> bool:
        own = change.values[first[0]]
        earlier = [c.values[first[0]] for c in changes if c.at < change.at and c.values[first[0]] is not None]
        if not earlier or own is None:
            return bool(earlier)
        return any(high - own > _distance(horizon) for high in earlier)

    return [change for change in changes if not late(change)]


def _distance(horizon: str) -> int | timedelta:
    if horizon.isdigit():
        return int(horizon)
    number, unit = horizon.split()
    return float(number) * {"ms": timedelta(milliseconds=1), "s": timedelta(seconds=1), "d": timedelta(days=1)}[unit]


def dropped(options: Mapping[str, str], change: Change) -> bool:
    """Whether the table never takes the record in."""
    ignore_delete = any(options.get(k) == "true" for k in ("ignore-delete", "partial-update.ignore-delete"))
    return ignore_delete or (change.kind == "-U" and options.get("ignore-update-before") == "true")


def _tells(table: TableCase) -> bool:
    return table.options.get("record.absent-columns") == "unchanged"


def function_of(table: TableCase, column: str) -> str | None:
    """The aggregate function of a column; None where it has none."""
    default = table.options.get("fields.default-aggregate-function")
    return table.options.get(f"fields.{column}.aggregate-function", default)


def _run(table: TableCase, column: str, function: str, changes: Sequence[Change], first: Sequence[str] = ()) -> Any:
    """What the function comes to; ``first`` is the column that orders ``changes`` first."""
    ignore = table.options.get(f"fields.{column}.ignore-retract") == "true"
    if function in COLLECTIONS:
        taken = [change for change in changes if change.values[column] is not None and (change.add or not ignore)]
        changes = on_time(table, first, taken)
    data_type = dict(table.columns)[column]
    step, acc = _step(table, column, function, data_type)
    counted = [(change.values[column], change.add) for change in changes if change.add or not ignore]
    if function == "sum" and data_type in ("FLOAT", "DOUBLE"):
        return exact_sum(counted, single=data_type == "FLOAT")
    for value, add in counted:
        acc = step(acc, value, add)
    if function in MEANINGS and acc is not EMPTY:
        return MEANINGS[function](acc)
    return _as_type(data_type, None if acc is EMPTY else acc)


def _step(table: TableCase, column: str, function: str, data_type: str) -> tuple[Step, Any]:
    if function in STEPS:
        return STEPS[function], EMPTY
    prefix = f"fields.{column}."
    own = {key[len(prefix) :]: text for key, text in table.options.items() if key.startswith(prefix)}
    return COLLECTIONS[function](own, data_type), None


def _as_type(data_type: str, value: Any) -> Any:
    if isinstance(value, Decimal) and "," in data_type:
        return value.quantize(Decimal(1).scaleb(-int(data_type.rstrip(")").split(",")[1])))
    return value


def _aggregation(table: TableCase, kept: Sequence[Change], order: Sequence[int]) -> Values:
    changes = [kept[position] for position in order]
    sequence = names(table.options.get("sequence.field", ""))
    row = {}
    for name in sequence:
        naming = [change for change in changes if says(change, name)]
        row[name] = naming[-1].values[name] if naming else None
    for column in table.values:
        if column not in sequence:
            heard = [change for change in changes if says(change, column)]
            row[column] = _run(table, column, function_of(table, column) or "last_non_null_value", heard, sequence[:1])
    return row


def _partial_update(table: TableCase, kept: Sequence[Change], order: Sequence[int]) -> Values:
    row: Values = {}
    for key, text in table.options.items():
        if key.endswith(".sequence-group"):
            row |= _group(table, names(key.split(".")[1]), names(text), kept, order)
    for column in table.values:
        if column not in row:
            adds = [kept[p] for p in order if kept[p].add and says(kept[p], column)]
            clears = _tells(table) and function_of(table, column) is None
            row[column] = _run(table, column, "last_value" if clears else "last_non_null_value", adds)
    return row


def _group(
    table: TableCase, ordering: list[str], protected: list[str], kept: Sequence[Change], order: Sequence[int]
) -> Values:
    """Records with the group's sequence, in (group, merge) order."""
    inside = [kept[p] for p in order if _has(ordering, kept[p])]
    inside.sort(key=lambda change: [sortable(change.values[g]) for g in ordering])
    row: Values = {g: inside[-1].values[g] if inside else None for g in ordering}
    for column in protected:
        if column not in ordering:
            function = function_of(table, column)
            # A retract takes a plain column away without naming it, as it does where nothing tells.
            heard = [c for c in inside if says(c, column) or not (function or c.add)]
            row[column] = _run(table, column, function or "last_value", heard, ordering[:1])
    return row


def _removing_groups(table: TableCase, kept: Sequence[Change], order: Sequence[int]) -> Values | None:
    """Rows that a -D removes when a listed group accepts it: every prefix after the last removal counts.

    The last effective -D is found by walking the history; what a group holds before a record is what its fold gives.
    """
    listed = names(table.options["partial-update.remove-record-on-sequence-group"])
    groups = [names(k.split(".")[1]) for k in table.options if k.endswith(".sequence-group")]
    listed_groups = [group for group in groups if set(group) & set(listed)]
    since: list[int] = []
    tombstones: dict[int, Change] = {}
    live = False
    for position in order:
        change = kept[position]
        accepting = [
            i for i, group in enumerate(listed_groups) if _accepts(group, kept, since, tombstones.get(i), change)
        ]
        if change.kind == "-D" and accepting:
            since, live = [], False
            tombstones = dict.fromkeys(accepting, change)
            continue
        since.append(position)
        stale = [
            i
            for i, tombstone in tombstones.items()
            if _has(listed_groups[i], change) and _place(listed_groups[i], change) < _place(listed_groups[i], tombstone)
        ]
        live = live or (change.add and not stale)
    if not live:
        return None
    return _after_removal(table, kept, since, {tuple(listed_groups[i]): t for i, t in tombstones.items()})


def _has(group: list[str], change: Change) -> bool:
    return any(change.values[g] is not None for g in group) and all(says(change, g) for g in group)


def _place(group: list[str], change: Change) -> list[Any]:
    return [sortable(change.values[g]) for g in group]


def _accepts(
    group: list[str], kept: Sequence[Change], since: Sequence[int], tombstone: Change | None, change: Change
) -> bool:
    if not _has(group, change):
        return False
    earlier = [_place(group, kept[p]) for p in since if _has(group, kept[p])]
    earlier += [_place(group, tombstone)] if tombstone is not None else []
    return all(_place(group, change) >= place for place in earlier)


def _after_removal(
    table: TableCase, kept: Sequence[Change], since: Sequence[int], tombstones: Mapping[tuple[str, ...], Change]
) -> Values:
    row = _partial_update(table, kept, since)
    for key, text in table.options.items():
        group = names(key.split(".")[1]) if key.endswith(".sequence-group") else []
        tombstone = tombstones.get(tuple(group))
        if tombstone is None:
            continue
        # What is older than the removal changes nothing of the group.
        inside = [p for p in since if _has(group, kept[p]) and _place(group, kept[p]) >= _place(group, tombstone)]
        row |= _group(table, group, names(text), kept, inside)
        if not inside:
            row |= {g: tombstone.values[g] for g in group}
    keys = {name: kept[0].values[name] for name in table.primary_key}
    return {name: {**keys, **row}[name] for name, _ in table.columns}
