"""Random tables and histories: few keys, many ties, nulls, late records, retracts, duplicates."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import settings

from tests.oracle import Change, TableCase, names
from tests.oracle_sketches import VALUES

KEYS = 12
TIMES = int(os.environ.get("KEYFOLD_EXAMPLES", "1"))


def examples(percent: int) -> int:
    """Return how many examples a property has that costs more or less than others: ``percent`` of the profile's.

    The profile of ``make test`` has 100: there ``percent`` is the number. ``KEYFOLD_EXAMPLES`` multiplies it.

    Random tables of Spark are few and wide. A job costs Spark nearly as much for four columns as for eight, and what
    is drawn of columns, their types and functions is as much as of twice as many tables of the usual width.
    """
    return max(1, TIMES * percent * settings().max_examples // 100)


DOMAINS: Mapping[str, list[Any]] = {
    "INT": [None, -1, 0, 1, 2, 3],
    "TINYINT": [None, -3, 0, 1, 2],
    "BIGINT": [None, -(2**40), 0, 1, 2**40],
    "DOUBLE": [None, -0.0, 0.0, 0.5, 1.25, -2.0],
    "FLOAT": [None, -0.0, 0.0, 0.5, 1.25],
    "DECIMAL(6,2)": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("0.25"), Decimal("10.00")],
    "STRING": [None, "", "a", "ab", "b", "ä", "z𝄞"],
    "BOOLEAN": [None, False, True],
    "DATE": [None, date(1969, 12, 31), date(2024, 1, 31), date(2024, 2, 29)],
    "TIMESTAMP(6)": [
        None,
        datetime(2024, 1, 31, 10, 0, 0, 1),
        datetime(2024, 1, 31, 10, 0, 0, 999),
        datetime(2024, 1, 31, 10, 0, 1),
    ],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [
        None,
        datetime(2024, 1, 31, 10, tzinfo=UTC),
        datetime(2024, 1, 31, 11, tzinfo=UTC),
    ],
    "VARBINARY(4)": [None, b"", b"\x00", b"\x7f\xff", b"\xff"],
    "ARRAY<INT>": [None, [], [1], [1, None], [2, 1, 1]],
    "ARRAY<MAP<STRING, INT>>": [None, [], [[("a", 1)]], [[("a", 1)], [("b", None)], None]],
    "MAP<STRING, INT>": [None, [], [("a", 1)], [("b", 2), ("a", None)]],
    "MAP<STRING, ROW<v INT, ts STRING>>": [
        None,
        [],
        [("a", {"v": 1, "ts": "2"})],
        [("a", {"v": 2, "ts": "2"}), ("b", {"v": 3, "ts": "1"})],
        [("a", None)],
        [("b", {"v": 4, "ts": None}), ("a", {"v": 5, "ts": "3"})],
    ],
    "ARRAY<ROW<id INT, s INT, v STRING>>": [
        None,
        [],
        [{"id": 1, "s": 1, "v": "a"}],
        [{"id": 2, "s": 2, "v": "b"}, None, {"id": 1, "s": None, "v": "c"}],
        [{"id": None, "s": 1, "v": "d"}, {"id": 1, "s": 3, "v": None}, {"id": 3, "s": 1, "v": "e"}],
    ],
}
FACTORS: Mapping[str, list[Any]] = {
    "TINYINT": [None, 1, -1, 1],
    "BIGINT": [None, 1, 2, -2],
    "DOUBLE": [None, 0.5, 2.0, -1.0],
    "DECIMAL(12,2)": [None, Decimal("0.50"), Decimal("2.00"), Decimal("-1.00")],
}
DOMAINS = {
    **DOMAINS,
    "DECIMAL(12,2)": FACTORS["DECIMAL(12,2)"],
    **dict.fromkeys(("BYTES", "VARBINARY(5000)"), DOMAINS["VARBINARY(4)"]),
}
# Functions that take only some values of their column's type.
FUNCTION_DOMAINS: Mapping[str, Mapping[str, list[Any]]] = {
    "product": FACTORS,
    "sum": {
        **DOMAINS,
        "DOUBLE": [None, -0.0, 0.1, 1e16, 1.25, -1e16],
        "FLOAT": [None, -0.0, 2.0**-40, 0.5, -(2.0**20)],
    },
    **{function: {"BYTES": values, "VARBINARY(5000)": values} for function, values in VALUES.items()},
}
# By the type of a sequence: how late a record may come.
HORIZONS: Mapping[str, list[str]] = {
    "INT": ["0", "1", "2"],
    "TINYINT": ["0", "1", "3"],
    "BIGINT": ["0", "1", "2000000000000"],
    "DATE": ["1 d", "29.5 d", "20000 d"],
    "TIMESTAMP(6)": ["0 s", "0.5 ms", "500 ms"],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": ["1 s", "2 d"],
}
ORDERED = [t for t in DOMAINS if not t.startswith(("ARRAY", "MAP"))]
NESTED_TABLE = "ARRAY<ROW<id INT, s INT, v STRING>>"
GROUP_ORDERED = ["INT", "BIGINT", "DOUBLE", "STRING", "DATE", "TIMESTAMP(6)", "DECIMAL(6,2)"]
NUMBERS = ["INT", "TINYINT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(6,2)"]
FUNCTION_TYPES: Mapping[str, list[str]] = {
    "sum": NUMBERS,
    "max": ORDERED,
    "min": ORDERED,
    "last_value": list(DOMAINS),
    "last_non_null_value": list(DOMAINS),
    "first_value": list(DOMAINS),
    "first_non_null_value": list(DOMAINS),
    "bool_and": ["BOOLEAN"],
    "bool_or": ["BOOLEAN"],
    "product": list(FACTORS),
    "listagg": ["STRING"],
    "collect": ["ARRAY<INT>", "ARRAY<MAP<STRING, INT>>", NESTED_TABLE],
    "merge_map": ["MAP<STRING, INT>"],
    "merge_map_with_keytime": ["MAP<STRING, ROW<v INT, ts STRING>>"],
    "nested_update": [NESTED_TABLE],
    "nested_partial_update": [NESTED_TABLE],
    **{function: ["BYTES", "VARBINARY(5000)"] for function in VALUES},
}
RETRACTABLE = ("sum", "last_value", "last_non_null_value", "product", "collect", "merge_map", "nested_update")


class TableMaker:
    """Draws one table, with so many times the usual columns; ``retracts``: whether its histories hold -U and -D."""

    def __init__(self, random: Random, times: int) -> None:
        self.random = random
        self.times = times
        self.columns: list[tuple[str, str]] = [("k", "INT"), ("j", "STRING")][: random.choice((1, 2))]
        self.primary_key = tuple(name for name, _ in self.columns)
        self.options: dict[str, str] = {}
        self.retracts = random.random() < 0.6

    def maybe(self, share: float = 0.5) -> bool:
        """True in ``share`` of the draws."""
        return self.random.random() < share

    def column(self, name: str, types: list[str]) -> str:
        """Adds a column of one of ``types``."""
        self.columns.append((name, self.random.choice(types)))
        return name

    def count(self, least: int, most: int) -> int:
        """How many columns of some sort there are."""
        return self.times * self.random.randint(least, most)

    def sequence_fields(self, share: float) -> None:
        """Perhaps one or two sequence fields, a direction, a padding."""
        if not self.maybe(share):
            return
        count = self.random.choice((1, 1, 2))
        padded = count == 1 and self.maybe(0.3)
        types = ["INT", "BIGINT", "TIMESTAMP(6)"] if padded else ORDERED
        fields = [self.column(f"s{i}", types) for i in range(count)]
        self.options["sequence.field"] = ",".join(fields)
        if self.maybe(0.4):
            self.options["sequence.field.sort-order"] = "descending"
        if padded:
            paddings = ["row-kind-flag", "second-to-micro", "millis-to-micro", "second-to-micro,row-kind-flag"]
            self.options["sequence.auto-padding"] = self.random.choice(paddings)

    def absent_columns(self) -> None:
        """Perhaps records that tell which columns they name."""
        if self.maybe(0.4):
            self.options["record.absent-columns"] = "unchanged"

    def late_horizon(self, share: float) -> None:
        """Perhaps a horizon of late records that suits the sequence field, or else any group."""
        types = dict(self.columns)
        fields = names(self.options.get("sequence.field", ""))
        groups = [key.split(".")[1] for key in self.options if key.endswith(".sequence-group")]
        first = (
            types[fields[0]] if fields else self.random.choice([types[names(group)[0]] for group in groups or ["k"]])
        )
        contradicted = fields and (
            "sequence.field.sort-order" in self.options or "sequence.auto-padding" in self.options
        )
        if not contradicted and first in HORIZONS and self.maybe(share):
            self.options["sequence.late-horizon"] = self.random.choice(HORIZONS[first])

    def function(self, name: str) -> None:
        """A column with an aggregate function that takes the history's retracts."""
        function = self.random.choice(list(FUNCTION_TYPES))
        self.column(name, FUNCTION_TYPES[function])
        self.options[f"fields.{name}.aggregate-function"] = function
        self.own_options(name, function)
        if self.retracts and (function not in RETRACTABLE or self.maybe(0.2)):
            self.options[f"fields.{name}.ignore-retract"] = "true"

    def own_options(self, name: str, function: str) -> None:
        """Options of the function itself."""
        keyed = function == "nested_partial_update" or (function == "nested_update" and self.maybe(0.7))
        drawn = {
            "distinct": "true" if function in ("listagg", "collect") and self.maybe() else None,
            "list-agg-delimiter": self.random.choice(("|", "; ")) if function == "listagg" and self.maybe() else None,
            "nested-key": "id" if keyed else None,
            "nested-key-null-strategy": self.random.choice(("merge", "ignore")) if keyed and self.maybe() else None,
            "nested-sequence-field": "s" if keyed and function == "nested_update" and self.maybe() else None,
            "count-limit": str(self.random.randint(1, 3)) if function == "nested_update" and self.maybe(0.4) else None,
        }
        self.options.update({f"fields.{name}.{suffix}": text for suffix, text in drawn.items() if text is not None})

    def table(self) -> TableCase:
        """The table drawn so far."""
        return TableCase(tuple(self.columns), self.primary_key, self.options)


def _deduplicate(maker: TableMaker) -> None:
    maker.sequence_fields(0.7)
    for i in range(maker.count(0, 3)):
        maker.column(f"v{i}", list(DOMAINS))
    if maker.maybe(0.2):
        maker.options[maker.random.choice(("ignore-delete", "ignore-update-before"))] = "true"


def _first_row(maker: TableMaker) -> None:
    maker.options["merge-engine"] = "first-row"
    maker.retracts = False
    for i in range(maker.count(1, 3)):
        maker.column(f"v{i}", list(DOMAINS))


def _partial_update(maker: TableMaker) -> None:
    maker.options["merge-engine"] = "partial-update"
    maker.absent_columns()
    groups = maker.random.choice((0, 1, 2))
    removes = groups == 0 and maker.retracts and maker.maybe()
    maker.retracts = maker.retracts and (groups > 0 or removes)
    if removes:
        maker.options["partial-update.remove-record-on-delete"] = "true"
    maker.sequence_fields(0.4)
    for i in range(groups):
        ordering = [maker.column(f"g{i}{n}", GROUP_ORDERED) for n in range(maker.random.choice((1, 1, 2)))]
        protected = []
        for n in range(maker.count(1, 3)):
            name = f"p{i}{n}"
            protected.append(name)
            maker.function(name) if maker.maybe(0.4) else maker.column(name, list(DOMAINS))
        maker.options[f"fields.{','.join(ordering)}.sequence-group"] = ",".join(protected)
        if maker.retracts and maker.maybe(0.3):
            key = "partial-update.remove-record-on-sequence-group"
            listed = [*names(maker.options.get(key, "")), maker.random.choice(ordering)]
            maker.options[key] = ",".join(listed)
    for i in range(maker.count(0 if groups else 1, 3)):
        name = maker.column(f"v{i}", list(DOMAINS))
        if maker.maybe(0.3):
            maker.options[f"fields.{name}.aggregate-function"] = "last_non_null_value"
    maker.late_horizon(0.5)


def _aggregation(maker: TableMaker) -> None:
    maker.options["merge-engine"] = "aggregation"
    maker.absent_columns()
    removes = maker.retracts and maker.maybe(0.3)
    maker.sequence_fields(0.5)
    for i in range(maker.count(1, 4)):
        maker.function(f"v{i}")
    if removes:
        maker.options["aggregation.remove-record-on-delete"] = "true"
        for key in [key for key in maker.options if key.endswith(".ignore-retract")]:
            column = key.split(".")[1]
            for own in [own for own in maker.options if own.startswith(f"fields.{column}.")]:
                del maker.options[own]
            maker.options[f"fields.{column}.aggregate-function"] = "last_non_null_value"
    maker.late_horizon(0.5)


ENGINES: Mapping[str, Callable[[TableMaker], None]] = {
    "deduplicate": _deduplicate,
    "first-row": _first_row,
    "partial-update": _partial_update,
    "aggregation": _aggregation,
}


def random_table(random: Random, engine: str, *, times: int = 1) -> tuple[TableCase, bool]:
    """A legal table of the engine, and whether its histories may hold retracts; with so many times the usual columns
    beside its key and its order.
    """
    maker = TableMaker(random, times)
    ENGINES[engine](maker)
    return maker.table(), maker.retracts


def random_history(random: Random, table: TableCase, retracts: bool, size: int) -> list[Change]:
    """``size`` changes of at most ``KEYS`` keys."""
    kinds = ["+I", "+U", "+I", "-U", "-D"] if retracts else ["+I", "+U"]
    return [_change(random, table, random.choice(kinds)) for _ in range(size)]


def _change(random: Random, table: TableCase, kind: str) -> Change:
    values = _values(random, table)
    if table.options.get("record.absent-columns") != "unchanged":
        return Change(kind, values)
    padded = table.options.get("sequence.field") if "sequence.auto-padding" in table.options else None
    named = frozenset(n for n in values if n in table.primary_key or n == padded or random.random() < 0.6)
    return Change(kind, {name: value if name in named else None for name, value in values.items()}, named)


def _values(random: Random, table: TableCase) -> dict[str, Any]:
    values: dict[str, Any] = {}
    padded = table.options.get("sequence.field") if "sequence.auto-padding" in table.options else None
    for name, data_type in table.columns:
        function = table.options.get(f"fields.{name}.aggregate-function", "")
        domain = FUNCTION_DOMAINS.get(function, DOMAINS).get(data_type, [])
        if name in table.primary_key:
            domain = list(range(KEYS)) if name == "k" else ["x", "y"]
        elif name == padded:
            domain = domain[1:]
        values[name] = None if domain[0] is None and random.random() < 0.3 else random.choice(domain)
    return values


def cut(random: Random, size: int, most: int) -> list[slice]:
    """``range(size)`` cut at random into at most ``most`` neighbouring pieces."""
    places = sorted(random.randint(0, size) for _ in range(random.randint(0, most - 1)))
    return [slice(a, b) for a, b in zip([0, *places], [*places, size], strict=True)]


# Types that hold all values of another one, and how a test writes the other one's values.
WIDER: Mapping[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "TINYINT": [("SMALLINT", int), ("BIGINT", int), ("DOUBLE", float), ("DECIMAL(12,2)", Decimal)],
    "INT": [("BIGINT", int), ("DOUBLE", float), ("DECIMAL(12,2)", Decimal)],
    "BIGINT": [("DECIMAL(24,2)", Decimal)],
    "FLOAT": [("DOUBLE", float)],
    "DECIMAL(6,2)": [("DECIMAL(9,4)", Decimal)],
    "DECIMAL(12,2)": [("DECIMAL(20,2)", Decimal)],
    "VARBINARY(4)": [("VARBINARY(9)", bytes), ("BYTES", bytes)],
    "VARBINARY(5000)": [("BYTES", bytes)],
}
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def widened_table(random: Random, table: TableCase) -> tuple[TableCase, Mapping[str, Callable[[Any], Any]]]:
    """The table with wider types outside its key, and how values of the changed columns are written now.

    A product stays among types that round alike: other types are another function. What a late horizon measures stays
    a whole number, as the horizon is.
    """
    columns, written = [], {}
    ordered = [table.options.get("sequence.field", "")]
    ordered += [key.split(".")[1] for key in table.options if key.endswith(".sequence-group")]
    measured = {name for fields in ordered for name in names(fields)[:1] if "sequence.late-horizon" in table.options}
    for name, data_type in table.columns:
        wider = [] if name in table.primary_key or random.random() < 0.3 else WIDER.get(data_type, [])
        if name in measured or table.options.get(f"fields.{name}.aggregate-function") == "product":
            wider = [entry for entry in wider if data_type not in _WHOLE or entry[0] in _WHOLE]
        kind, convert = random.choice(wider) if wider else (data_type, None)
        columns.append((name, kind))
        if convert is not None:
            written[name] = convert
    return replace(table, columns=tuple(columns)), written


def rewritten(change: Change, written: Mapping[str, Callable[[Any], Any]]) -> Change:
    """A change with the values of wider types."""
    values = {n: v if v is None or n not in written else written[n](v) for n, v in change.values.items()}
    return Change(change.kind, values, change.named)
