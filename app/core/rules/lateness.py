"""Which records come too late for a log, and which of its entries no later record can come before any more
(``sequence.late-horizon``).

A record is too late if its sequence is more than the horizon below the highest one that came to the same log before it,
or null if one came: what arrived decides, not when it was merged. So a record that comes after a log was stored lies
within the horizon of the log's highest sequence, or changes nothing, and what the log holds below that is settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any

from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Family

Entry = Mapping[str, Any]
Horizon = int | timedelta

_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "min": timedelta(minutes=1), "s": timedelta(seconds=1)}


def horizon_text(horizon: Horizon) -> str:
    """Return a horizon as one writes it."""
    if isinstance(horizon, int):
        return str(horizon)
    whole = next(((unit, one) for unit, one in _UNITS.items() if not horizon % one), None)
    return f"{horizon // whole[1]} {whole[0]}" if whole else f"{horizon / timedelta(milliseconds=1):g} ms"


@dataclass(frozen=True)
class Lateness:
    """The horizon of logs that ``column`` orders first: whole numbers by a number, dates and times by a time."""

    column: Column
    horizon: Horizon

    @staticmethod
    def measures(data_type: DataType, horizon: Horizon) -> bool:
        """Return whether sequences of the type can be distinguished by the horizon."""
        families = (Family.INTEGER,) if isinstance(horizon, int) else (Family.DATE, Family.TIMESTAMP)
        return data_type.family in families

    @property
    def words(self) -> str:
        """Which records are too late."""
        return f"more than {horizon_text(self.horizon)} below the latest {self.column.name}"

    def _bound(self, highest: Any) -> Any:
        """Return the bound below which a value is too late; None if there is none."""
        try:
            return None if highest is None else highest - self.horizon
        except OverflowError:  # before the first day of the calendar
            return None

    def on_time(self, log: Sequence[Entry], sequence: str, arrival: str) -> list[Entry]:
        """Return the entries of ``log`` that were not too late, by arrival; the texts name the members of an entry."""
        entries = []
        highest = bound = None
        for entry in sorted(log, key=itemgetter(arrival)):
            value = entry.get(sequence)
            if highest is not None and _is_below(value, bound):
                continue
            entries.append(entry)
            if value is not None and (highest is None or value > highest):
                highest, bound = value, self._bound(value)
        return entries

    def is_closed(self, highest: Any, value: Any) -> bool:
        """Return whether a record with the sequence ``value`` comes too late for a log that has come to ``highest``."""
        return highest is not None and _is_below(value, self._bound(highest))

    def split(self, log: Sequence[Entry], sequence: str) -> tuple[list[Entry], list[Entry]]:
        """Return the entries that no record can come before any more, and the others; each as in ``log``."""
        bound = self._bound(highest_of(log, sequence))
        if bound is None:
            return [], list(log)
        below = [_is_below(entry.get(sequence), bound) for entry in log]
        settled = [entry for entry, is_below in zip(log, below, strict=True) if is_below]
        return settled, [entry for entry, is_below in zip(log, below, strict=True) if not is_below]


def highest_of(log: Sequence[Entry], sequence: str) -> Any:
    """Return the highest sequence of ``log``; None if it has none."""
    return max((e[sequence] for e in log if e.get(sequence) is not None), default=None)


def _is_below(value: Any, bound: Any) -> bool:
    return value is None or (bound is not None and bool(value < bound))
