"""A table's rules for people: columns of equal rules are one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.table.schema import Column
from app.services.tables.drafts import DraftTable
from app.services.tables.rules import ColumnRule

# Most names in one line; the others are counted.
MOST_NAMES: Final = 8


@dataclass(frozen=True)
class RuleLine:
    """``columns``, in the table's order, and the rule that each of them has."""

    columns: Sequence[Column]
    rule: str
    default: str | None
    depends_on_arrival: bool

    @property
    def names(self) -> str:
        """The names of the columns; of many the first few, and the number of others."""
        named = ", ".join(column.name for column in self.columns[:MOST_NAMES])
        others = len(self.columns) - MOST_NAMES
        return f"{named} and {others} more" if others > 0 else named


def rule_lines(table: DraftTable) -> Sequence[RuleLine]:
    """Return the rules of the columns, each once, in the order of its first column."""
    columns: dict[tuple[str, str | None, bool], list[Column]] = {}
    for column, rule in zip(table.schema.columns, table.rules.columns, strict=True):
        columns.setdefault(_said(rule), []).append(column)
    return [RuleLine(members, *words) for words, members in columns.items()]


def _said(rule: ColumnRule) -> tuple[str, str | None, bool]:
    """Return the words about a column."""
    return rule.rule, rule.default, rule.depends_on_arrival
