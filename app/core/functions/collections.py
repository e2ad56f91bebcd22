"""Aggregate functions over texts, arrays and maps (merge-semantics §5.1 to §5.6), each with both meanings side by
side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.rules.spark_sql import comparable, literal, member, members
from app.core.rules.stepwise import StepFunction
from app.core.types.datatype import DataType
from app.core.types.kinds import Family
from app.core.types.numbers import float_rank

# What Java's Character.isWhitespace takes for white space: no no-break spaces (§5.2).
_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
_BLANK_SQL = (
    r"'[\\x09-\\x0d\\x1c-\\x1f \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200a}\\x{2028}\\x{2029}\\x{205f}\\x{3000}]"
)


def is_blank(text: str | None) -> bool:
    """Whether a text is null, empty or white space only (§5.2)."""
    return text is None or not text.strip(_BLANKS)


def _blank_sql(text: str) -> str:
    return f"({text} IS NULL OR regexp_like({text}, {_BLANK_SQL.replace(chr(39), chr(39) + '^')}*$'))"


def listagg(delimiter: str, distinct: bool) -> StepFunction:
    """Texts joined by ``delimiter``; with ``distinct`` only tokens that are not there yet (§5.2)."""
    split, split_sql = _splitting(delimiter)

    def add(accumulated: str | None, value: str) -> str | None:
        if is_blank(value):
            return accumulated
        if accumulated is None or is_blank(accumulated):
            return value
        if not distinct:
            return accumulated + delimiter + value
        seen = split(accumulated)
        for token in split(value):
            if not is_blank(token) and token not in seen:
                accumulated += delimiter + token
                seen.append(token)
        return accumulated

    joint = literal(delimiter)

    def add_sql(a: str, v: str) -> str:
        joined = f"concat({a}, {joint}, {v})"
        if distinct:
            known = f"array_contains({split_sql('x')}, y)"
            joined = (
                f"aggregate({split_sql(v)}, {a}, (x, y) -> IF({_blank_sql('y')} OR {known}, x, concat(x, {joint}, y)))"
            )
        return f"CASE WHEN {_blank_sql(v)} THEN {a} WHEN {_blank_sql(a)} THEN {v} ELSE {joined} END"

    return StepFunction(add, add_sql)


def _splitting(delimiter: str) -> tuple[Callable[[str], list[str]], Callable[[str], str]]:
    """Splits at ``delimiter``; an empty one stands for white space (§5.2)."""
    if not delimiter:
        spaces = re.compile(f"[{_BLANKS}]+")
        return (lambda text: [token for token in spaces.split(text) if token]), (
            lambda text: f"filter(split({text}, {_BLANK_SQL}+'), w -> w <> '')"
        )
    return (lambda text: text.split(delimiter)), (lambda text: f"split({text}, {literal(re.escape(delimiter))})")


def _key_of(data_type: DataType) -> Callable[[Any], Any]:
    """Values of the type as something that compares by content, maps in any order of their entries."""

    def key(value: Any, inner: DataType) -> Any:
        if value is None:
            return None
        if inner.family is Family.ARRAY:
            return tuple(key(item, inner.element_type) for item in value)
        if inner.family is Family.ROW:
            return tuple(key(value[field.name], field.type) for field in inner.fields)
        if inner.family is Family.MAP:
            key_type, value_type = inner.map_types
            return frozenset((key(k, key_type), key(v, value_type)) for k, v in value)
        # Spark takes NaN for equal to itself, and -0.0 for equal to 0.0.
        return ("float", float_rank(value + 0.0)) if inner.family is Family.FLOATING else value

    return lambda value: key(value, data_type)


def collect(column: DataType, distinct: bool) -> StepFunction:
    """Arrays one behind the other; with ``distinct`` equal elements once, in the order they came (§5.3)."""
    element = column.element_type
    key = _key_of(element)

    def add(accumulated: list[Any] | None, value: list[Any]) -> list[Any]:
        return [*(accumulated or []), *value]

    def add_distinct(accumulated: list[Any] | None, value: list[Any]) -> list[Any]:
        kept = list(accumulated or [])
        seen = {key(item) for item in kept}
        for item in value:
            if key(item) not in seen:
                seen.add(key(item))
                kept.append(item)
        return kept

    def retract(accumulated: list[Any], value: list[Any]) -> list[Any]:
        kept = list(accumulated)
        for gone in value:
            places = [place for place, item in enumerate(kept) if key(item) == key(gone)]
            if places:
                del kept[places[0]]
        return kept

    def add_sql(a: str, v: str) -> str:
        if not distinct:
            return f"IF({a} IS NULL, {v}, concat({a}, {v}))"
        known = f"exists(x, z -> {comparable(element, 'z')} <=> {comparable(element, 'y')})"
        start = f"coalesce({a}, CAST(array() AS {column.spark}))"
        return f"aggregate({v}, {start}, (x, y) -> IF({known}, x, CAST(concat(x, array(y)) AS {column.spark})))"

    def retract_sql(a: str, v: str) -> str:
        same = f"transform(x, z -> {comparable(element, 'z')} <=> {comparable(element, 'y')})"
        without = f"filter(x, (z, i) -> i + 1 <> array_position({same}, TRUE))"
        return f"aggregate({v}, {a}, (x, y) -> {without})"

    return StepFunction(add_distinct if distinct else add, add_sql, retract, retract_sql)


def merge_map(column: DataType) -> StepFunction:
    """The union of the maps' entries, later values winning; a retract removes its keys (§5)."""
    key = _key_of(column.key_type)

    def add(accumulated: list[tuple[Any, Any]] | None, value: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        entries = {key(k): (k, v) for k, v in accumulated or []}
        for k, v in value:
            entries[key(k)] = (entries[key(k)][0] if key(k) in entries else k, v)
        return list(entries.values())

    def retract(accumulated: list[tuple[Any, Any]], value: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        gone = {key(k) for k, _ in value}
        return [(k, v) for k, v in accumulated if key(k) not in gone]

    return StepFunction(
        add,
        lambda a, v: f"IF({a} IS NULL, {v}, map_concat({a}, {v}))",
        retract,
        lambda a, v: f"map_filter({a}, (k, x) -> NOT array_contains(map_keys({v}), k))",
    )


def merge_map_with_keytime(column: DataType, time_field: str) -> StepFunction:
    """Per map key the row with the latest time, the first of equal times; a null row removes its key (§5.4, Q16)."""
    key = _key_of(column.key_type)

    def add(accumulated: list[tuple[Any, Any]] | None, value: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        entries = {key(k): (k, row) for k, row in accumulated or []}
        for k, row in value:
            if row is None:
                entries.pop(key(k), None)
            elif row[time_field] is not None:
                _, stored = entries.get(key(k), (k, None))
                if stored is None or stored[time_field] is None or row[time_field] > stored[time_field]:
                    entries[key(k)] = (entries[key(k)][0] if key(k) in entries else k, row)
        return list(entries.values())

    def add_sql(a: str, v: str) -> str:
        stored = "try_element_at(m, y.key)"
        new_time, old_time = member("y.value", time_field), f"{stored}.{_quoted(time_field)}"
        later = f"({old_time} IS NULL OR {new_time} > {old_time})"
        step = (
            f"CASE WHEN y.value IS NULL THEN map_filter(m, (k, x) -> NOT (k <=> y.key)) WHEN {new_time} IS NULL THEN m "
            f"WHEN {later} THEN map_concat(m, map(y.key, y.value)) ELSE m END"
        )
        start = f"coalesce({a}, CAST(map() AS {column.spark}))"
        return f"aggregate(map_entries({v}), {start}, (m, y) -> CAST({step} AS {column.spark}))"

    return StepFunction(add, add_sql, associative=not column.element_type.nullable)


def _quoted(name: str) -> str:
    return member("", name)[1:]


@dataclass(frozen=True)
class NestedKey:
    """How the elements of a nested table are told apart (§5.5): key fields, what a null in them means, their order."""

    fields: tuple[str, ...]
    null_strategy: str = "merge"
    sequence: tuple[str, ...] = ()

    def of(self, element: Mapping[str, Any]) -> tuple[Any, ...]:
        """The element's key."""
        return tuple(element[name] for name in self.fields)

    def taken(self, elements: Sequence[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
        """The elements that count: no nulls, and with the strategy ``ignore`` none with a null key."""
        ignore = self.null_strategy == "ignore"
        return [e for e in elements if e is not None and not (ignore and None in self.of(e))]

    def taken_sql(self, elements: str) -> str:
        """As ``taken``."""
        conditions = ["y IS NOT NULL"]
        if self.null_strategy == "ignore":
            conditions += [f"{member('y', name)} IS NOT NULL" for name in self.fields]
        return f"filter({elements}, y -> {' AND '.join(conditions)})"

    def same_sql(self, a: str, b: str) -> str:
        """Whether two elements have the same key."""
        return f"{members(a, self.fields)} <=> {members(b, self.fields)}"

    def fault(self, elements: Sequence[Mapping[str, Any] | None]) -> str | None:
        """Why the elements can never be folded."""
        if self.null_strategy == "error" and any(e is not None and None in self.of(e) for e in elements):
            return f"a nested key ({', '.join(self.fields)}) is null and nested-key-null-strategy is error"
        return None


def nested_update_unkeyed(column: DataType, limit: int | None) -> StepFunction:
    """Elements appended up to ``limit``; a retract removes all equal ones (§5.5)."""
    element = column.element_type
    key = _key_of(element)

    def add(accumulated: list[Any] | None, value: list[Any]) -> list[Any]:
        kept = [*(accumulated or []), *(item for item in value if item is not None)]
        return kept if limit is None else kept[: max(limit, len(accumulated or []))]

    def retract(accumulated: list[Any], value: list[Any]) -> list[Any]:
        gone = {key(item) for item in value if item is not None}
        return [item for item in accumulated if key(item) not in gone]

    def add_sql(a: str, v: str) -> str:
        empty = f"CAST(array() AS {column.spark})"
        joined = f"concat(coalesce({a}, {empty}), filter({v}, y -> y IS NOT NULL))"
        return joined if limit is None else f"slice({joined}, 1, greatest({limit}, size(coalesce({a}, {empty}))))"

    def retract_sql(a: str, v: str) -> str:
        return f"filter({a}, x -> NOT exists({v}, y -> {comparable(element, 'y')} <=> {comparable(element, 'x')}))"

    return StepFunction(add, add_sql, retract, retract_sql)


def nested_update(column: DataType, nested: NestedKey, limit: int | None) -> StepFunction:
    """Elements by key, later ones (or those of the larger sequence) replacing; new keys up to ``limit`` (§5.5)."""
    element = column.element_type
    orders = [field for name in nested.sequence for field in element.fields if field.name == name]
    key = _key_of(element)

    def part(item: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
        whole = dict(zip((field.name for field in element.fields), key(item), strict=True))
        return tuple(whole[name] for name in names)

    def rank(item: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        ranks = []
        for field in orders:
            value = item[field.name]
            ranks.append((0,) if value is None else (1, float_rank(value) if isinstance(value, float) else value))
        return ranks

    def add(accumulated: list[Any] | None, value: list[Any]) -> list[Any]:
        kept = {part(item, nested.fields): item for item in accumulated or []}
        for item in nested.taken(value):
            place = part(item, nested.fields)
            if place in kept:
                if not orders or rank(item) >= rank(kept[place]):
                    kept[place] = item
            elif limit is None or len(kept) < limit:
                kept[place] = item
        return list(kept.values())

    def retract(accumulated: list[Any], value: list[Any]) -> list[Any]:
        gone = {part(item, nested.fields) for item in nested.taken(value)}
        return [item for item in accumulated if part(item, nested.fields) not in gone]

    def add_sql(a: str, v: str) -> str:
        later = f" AND {members('y', nested.sequence)} >= {members('z', nested.sequence)}" if nested.sequence else ""
        replaced = f"transform(x, z -> IF({nested.same_sql('z', 'y')}{later}, y, z))"
        appended = "concat(x, array(y))"
        if limit is not None:
            appended = f"IF(size(x) < {limit}, {appended}, x)"
        step = f"IF(exists(x, z -> {nested.same_sql('z', 'y')}), {replaced}, {appended})"
        start = f"coalesce({a}, CAST(array() AS {column.spark}))"
        return f"aggregate({nested.taken_sql(v)}, {start}, (x, y) -> CAST({step} AS {column.spark}))"

    def retract_sql(a: str, v: str) -> str:
        return f"filter({a}, x -> NOT exists({nested.taken_sql(v)}, z -> {nested.same_sql('z', 'x')}))"

    return StepFunction(add, add_sql, retract, retract_sql, associative=limit is None, fault=nested.fault)


def nested_partial_update(column: DataType, nested: NestedKey) -> StepFunction:
    """Elements by key, each nested field taking its latest value that is not null (§5.6)."""
    fields = [field.name for field in column.element_type.fields]

    def add(accumulated: list[Any] | None, value: list[Any]) -> list[Any]:
        kept: dict[tuple[Any, ...], Mapping[str, Any]] = {nested.of(item): item for item in accumulated or []}
        for item in nested.taken(value):
            old = kept.get(nested.of(item), item)
            kept[nested.of(item)] = {name: old[name] if item[name] is None else item[name] for name in fields}
        return list(kept.values())

    def add_sql(a: str, v: str) -> str:
        filled = ", ".join(f"{literal(name)}, coalesce({member('y', name)}, {member('z', name)})" for name in fields)
        replaced = f"transform(x, z -> IF({nested.same_sql('z', 'y')}, named_struct({filled}), z))"
        step = f"IF(exists(x, z -> {nested.same_sql('z', 'y')}), {replaced}, concat(x, array(y)))"
        start = f"coalesce({a}, CAST(array() AS {column.spark}))"
        return f"aggregate({nested.taken_sql(v)}, {start}, (x, y) -> CAST({step} AS {column.spark}))"

    return StepFunction(add, add_sql, fault=nested.fault)
