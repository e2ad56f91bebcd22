"""Values for columns that the table does not have: what a request wants done with them, and what was found of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from app.core.hints import cut, printable

MOST_NAMES: Final = 100
# The type of a column is guessed from at most this many values.
_MOST_VALUES: Final = 1000


class UnknownColumns(StrEnum):
    """Values of ``unknownColumns``."""

    REFUSE = "refuse"
    IGNORE = "ignore"
    ADD = "add"


@dataclass(frozen=True)
class DeclaredColumn:
    """A column as its source declares it: its type in SQL, and the text of its default, None if it has none."""

    type: str
    default: str | None = None


@dataclass
class FoundColumns:
    """Columns that the records of a body name and the table does not have.

    ``records``: how many records have each. ``values``: some values that are not null. ``declared``: the columns that
    the source declares, also those of the table; None if they are not needed. ``more``: there are more than a hundred
    names, and those beyond are not noted.
    """

    declared: dict[str, DeclaredColumn] | None
    records: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    more: bool = False

    def note(self, raw: Mapping[str, Any], names: Iterable[str]) -> None:
        """Count the unknown members ``names`` of one record, and keep some of their values."""
        for name in sorted(names):
            self.note_column(name, 1)
            values = self.values.get(cut(name))
            if values is not None and raw[name] is not None and len(values) < _MOST_VALUES:
                values.append(raw[name])

    def note_column(self, name: str, records: int) -> None:
        """Note a column that so many records have."""
        name = cut(name)
        if name not in self.records and len(self.records) == MOST_NAMES:
            self.more = True
            return
        self.records[name] = self.records.get(name, 0) + records
        self.values.setdefault(name, [])

    @property
    def shown(self) -> Mapping[str, int]:
        """``records`` by names that answers can carry."""
        return {printable(name): count for name, count in self.records.items()}

    def known_of(self, names: Sequence[str], known: Collection[str], records: int) -> Sequence[str]:
        """Return those of a body's columns that the table has; the others are noted."""
        for name in names:
            if name not in known:
                self.note_column(name, records)
        return [name for name in names if name in known]
