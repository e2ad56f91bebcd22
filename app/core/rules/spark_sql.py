"""The vocabulary of Spark SQL text: names, members, literals, and what the rules say of a record ``r``."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.types.datatype import DataType, walk_types
from app.core.types.kinds import Family
from app.core.types.nested import quote as quote  # noqa: PLC0414  # Paimon quotes names as Spark does; one vocabulary for both


def literal(text: str) -> str:
    """``text`` as a string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def member(value: str, name: str) -> str:
    """Field ``name`` of the struct ``value``."""
    return f"{value}.{quote(name)}"


def members(value: str, names: Sequence[str]) -> str:
    """The fields ``names`` of the struct ``value`` as one comparable value."""
    return f"struct({', '.join(member(value, name) for name in names)})"


def comparable(data_type: DataType, value: str, depth: int = 0) -> str:
    """``value`` in a form that ``<=>`` compares: Spark has no equality of maps, so they become sorted entries."""
    if not any(inner.family is Family.MAP for inner in walk_types(data_type)):
        return value
    variable = f"c{depth}"
    if data_type.family is Family.ARRAY:
        return f"transform({value}, {variable} -> {comparable(data_type.element_type, variable, depth + 1)})"
    if data_type.family is Family.ROW:
        fields = (comparable(field.type, member(value, field.name), depth + 1) for field in data_type.fields)
        return f"IF({value} IS NULL, NULL, struct({', '.join(fields)}))"
    _, value_type = data_type.map_types
    entry = f"struct({variable}.key, {comparable(value_type, f'{variable}.value', depth + 1)})"
    return f"array_sort(transform(map_entries({value}), {variable} -> {entry}))"


ADD_SQL = "(r._kf_kind IN (0, 2))"


def ref(relation: str, name: str) -> str:
    """The SQL of column ``name`` of ``relation``."""
    return f"{relation}.{quote(name)}"


def any_not_null(relation: str, names: tuple[str, ...]) -> str:
    """SQL: whether one of the columns is not null."""
    return "(" + " OR ".join(f"{ref(relation, name)} IS NOT NULL" for name in names) + ")"


def struct_sql(expressions: list[str]) -> str:
    """One comparable Spark value of several expressions."""
    return expressions[0] if len(expressions) == 1 else f"struct({', '.join(expressions)})"


def bound_sql(value: str, name: str, result: str) -> str:
    """``result``, in which ``name`` stands for ``value``: written out, it would be computed once per use."""
    return f"transform(array({value}), {name} -> {result})[0]"


def indexes_sql(entries: str, keys: Sequence[str]) -> str:
    """The places of the array ``entries`` (a name) in the order of ``keys``, texts over an entry ``e`` and its place
    ``i``, which decides last.
    """
    # By struct and not by a comparison: Spark would evaluate that for every pair. What is sorted has no maps in it.
    members = ", ".join(f"{key} AS k{number}" for number, key in enumerate([*keys, "i"]))
    return f"transform(sort_array(transform({entries}, (e, i) -> struct({members}))), s -> s.k{len(keys)})"


def sorted_sql(entries: str, keys: Sequence[str], entry_type: DataType) -> str:
    """``entries`` sorted by ``keys``, each a template over the entry ``{e}``; no two entries are alike in all of
    them.
    """
    if not any(inner.family is Family.MAP for inner in walk_types(entry_type)):
        members = ", ".join(f"{key.replace('{e}', 'e')} AS k{number}" for number, key in enumerate(keys))
        return f"transform(sort_array(transform({entries}, e -> struct({members}, e AS e))), s -> s.e)"
    left, right = (f"struct({', '.join(key.replace('{e}', side) for key in keys)})" for side in ("l", "r"))
    return (
        f"array_sort({entries}, (l, r) -> CASE WHEN {left} < {right} THEN -1 WHEN {left} > {right} THEN 1 ELSE 0 END)"
    )


def last_of_key_sql(elements: str, key: str, order: str | None, value: str) -> str:
    """For each ``key`` (of an element ``y``), in the order in which they first come, the ``value`` of the last of
    ``elements`` (a name): structs of ``k`` and ``v``. ``order``: places of ``elements`` in the order that decides which
    is the last; None: as they come.
    """
    # A map keeps the place of the first entry of a key and the value of the last one.
    entries = f"transform({elements}, y -> struct({key} AS k, {value} AS v))"
    if order is not None:
        entries = bound_sql(entries, "n", f"concat(n, transform({order}, p -> n[p]))")
    return f"transform(map_entries(map_from_entries({entries})), y -> struct(y.key AS k, y.value AS v))"
