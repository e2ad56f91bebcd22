"""Which records come too late for a log, and which of its entries no later record can come before any more
(``sequence.late-horizon``).

A record is too late if its sequence is more than the horizon below the highest one that came to the same log before it,
or null where one came: what arrived decides, not when it was merged. So a record that comes after a log was stored lies
within the horizon of the log's highest sequence, or changes nothing, and what the log holds below that is settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any

from app.core.rules.spark_sql import bound_sql, sorted_sql
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family, Kind

Entry = Mapping[str, Any]
Horizon = int | timedelta

_POSITION = DataType(Kind.BIGINT)
_MOST = 2**63 - 1
_PIECE = 256  # entries that Spark walks at once: what it gathers in a walk it copies at every step
_POSITIONS: Mapping[Family, str] = {
    Family.INTEGER: "CAST({0} AS BIGINT)",
    Family.DATE: "unix_date({0})",
    Family.TIMESTAMP: "unix_micros(CAST({0} AS TIMESTAMP))",
}


_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1), "s": timedelta(seconds=1)}


def horizon_text(horizon: Horizon) -> str:
    """A horizon as one writes it."""
    if isinstance(horizon, int):
        return str(horizon)
    found = next(((unit, one) for unit, one in _UNITS.items() if not horizon % one), None)
    return f"{horizon // found[1]} {found[0]}" if found else f"{horizon / timedelta(milliseconds=1):g} ms"


@dataclass(frozen=True)
class Lateness:
    """The horizon of logs that ``column`` orders first: whole numbers by a number, dates and times by a time."""

    column: Column
    horizon: Horizon

    @staticmethod
    def measures(data_type: DataType, horizon: Horizon) -> bool:
        """Whether sequences of the type can be told apart by the horizon."""
        families = (Family.INTEGER,) if isinstance(horizon, int) else (Family.DATE, Family.TIMESTAMP)
        return data_type.family in families

    @property
    def words(self) -> str:
        """Which records are too late."""
        return f"more than {horizon_text(self.horizon)} below the latest {self.column.name}"

    def _bound(self, highest: Any) -> Any:
        """What is below it is too late; None where nothing is."""
        try:
            return None if highest is None else highest - self.horizon
        except OverflowError:  # before the first day of the calendar
            return None

    def on_time(self, log: Sequence[Entry], sequence: str, arrival: str) -> list[Entry]:
        """The entries of ``log`` that were not too late, by arrival; the texts name the members of an entry."""
        kept = []
        highest = bound = None
        for entry in sorted(log, key=itemgetter(arrival)):
            value = entry.get(sequence)
            if highest is not None and _is_below(value, bound):
                continue
            kept.append(entry)
            if value is not None and (highest is None or value > highest):
                highest, bound = value, self._bound(value)
        return kept

    def is_closed(self, highest: Any, value: Any) -> bool:
        """Whether a record with the sequence ``value`` comes too late for a log that has come to ``highest``."""
        return highest is not None and _is_below(value, self._bound(highest))

    def split(self, log: Sequence[Entry], sequence: str) -> tuple[list[Entry], list[Entry]]:
        """The entries that no record can come before any more, and the others; each as in ``log``."""
        bound = self._bound(highest_of(log, sequence))
        if bound is None:
            return [], list(log)
        below = [_is_below(entry.get(sequence), bound) for entry in log]
        settled = [entry for entry, is_below in zip(log, below, strict=True) if is_below]
        return settled, [entry for entry, is_below in zip(log, below, strict=True) if not is_below]

    def _position(self, entry: str, sequence: str) -> str:
        return _POSITIONS[self.column.type.family].format(f"{entry}.{sequence}")

    def _bound_sql(self, highest: str) -> str:
        steps = min(self._steps, _MOST)
        return f"try_subtract(CAST({highest} AS BIGINT), {steps}L)"

    @property
    def _steps(self) -> int:
        if isinstance(self.horizon, int):
            return self.horizon
        whole_days = self.column.type.family is Family.DATE
        return self.horizon.days if whole_days else self.horizon // timedelta(microseconds=1)

    def _highest_sql(self, log: str, sequence: str) -> str:
        return f"array_max(transform({log}, e -> {self._position('e', sequence)}))"

    def on_time_sql(self, log: str, sequence: str, arrival: str, entry_type: DataType) -> str:
        """As ``on_time``; most logs hold nothing that could be too late and are left as they are."""
        position = self._position("e", sequence)
        old = f"exists(l, e -> {position} IS NULL OR {position} < {self._bound_sql('h')})"
        by_arrival = sorted_sql("l", [f"{{e}}.{arrival}"], entry_type)
        walked = bound_sql(by_arrival, "s", self._walked_sql("s", sequence, entry_type))
        checked = bound_sql(self._highest_sql("l", sequence), "h", f"IF({old}, {walked}, l)")
        return bound_sql(log, "l", checked)

    def _walked_sql(self, log: str, sequence: str, entry_type: DataType) -> str:
        """As ``on_time``, of a log by arrival, piece by piece, each with the highest sequence before it."""
        piece = f"slice({log}, c * {_PIECE} + 1, {_PIECE})"
        highs = f"transform(sequence(0, (size({log}) - 1) DIV {_PIECE}), c -> {self._highest_sql(piece, sequence)})"
        before_type, kept_type = (
            f"STRUCT<h: BIGINT, found: ARRAY<{element}>>" for element in (_POSITION.spark, entry_type.spark)
        )
        begun = f"CAST(named_struct('h', NULL, 'found', array()) AS {before_type})"
        gone = "named_struct('h', greatest(a.h, p), 'found', concat(a.found, array(a.h)))"
        before = f"aggregate({highs}, {begun}, (a, p) -> CAST({gone} AS {before_type})).found"
        position = self._position("e", sequence)
        late = f"a.h IS NOT NULL AND ({position} IS NULL OR coalesce({position} < {self._bound_sql('a.h')}, FALSE))"
        taken = f"named_struct('h', greatest(a.h, {position}), 'found', concat(a.found, array(e)))"
        first = f"CAST(named_struct('h', b, 'found', array()) AS {kept_type})"
        kept = f"aggregate({piece}, {first}, (a, e) -> IF({late}, a, CAST({taken} AS {kept_type}))).found"
        return f"flatten(transform({before}, (b, c) -> {kept}))"

    def settled_below_sql(self, log: str, sequence: str) -> str:
        """The bound of ``split``: null where nothing of ``log`` is settled."""
        return self._bound_sql(self._highest_sql(log, sequence))

    def part_sql(self, log: str, sequence: str, bound: str, *, settled: bool) -> str:
        """One of the parts of ``split``, given its bound; of a bound that is null, nothing is settled."""
        position = self._position("e", sequence)
        below = f"coalesce({bound} IS NOT NULL AND ({position} IS NULL OR {position} < {bound}), FALSE)"
        return f"filter({log}, e -> {below if settled else f'NOT {below}'})"


def highest_of(log: Sequence[Entry], sequence: str) -> Any:
    """The highest sequence of ``log``; None where it has none."""
    return max((e[sequence] for e in log if e.get(sequence) is not None), default=None)


def _is_below(value: Any, bound: Any) -> bool:
    return value is None or (bound is not None and bool(value < bound))
