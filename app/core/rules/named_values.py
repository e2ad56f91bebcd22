"""Columns that each keep the latest value that an add names, by arrival (docs/decisions/0022).

They share one hidden column, a word of bits that says which of them were ever named: without it a run in which a column
was cleared would be like one that says nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any

from app.core.rules.log_records import LogRecords
from app.core.rules.participation import UNCHANGED, Adds, Names, Participation
from app.core.rules.rule import Combine, HiddenColumn, Rule, State
from app.core.table.named_columns import bit_of, word_of
from app.core.table.records import Record
from app.core.table.schema import Column
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind


@dataclass(frozen=True)
class NamedValues(Rule):
    """``columns`` of one word, each by itself."""

    columns: tuple[Column, ...]

    @cached_property
    def word(self) -> str:
        """The hidden column: the bits of the columns that were named."""
        return word_of(self.columns[0])

    @cached_property
    def hidden(self) -> tuple[HiddenColumn, ...]:
        return (HiddenColumn(self.word, DataType(Kind.BIGINT)),)

    @property
    def null_may_be_unnamed(self) -> bool:
        return True

    def named_columns(self, state: Mapping[str, Any]) -> frozenset[str]:
        word = state.get(self.word) or 0
        return frozenset(column.name for column in self.columns if word & bit_of(column))

    @property
    def parts(self) -> tuple[Combine, ...]:
        return (self._joined_word, *(partial(self._latest_value, column) for column in self.columns))

    @property
    def kept(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    def part_of(self, column: Column) -> Participation:
        """Return the records that set the column."""
        return Participation((Adds(), Names((column,), UNCHANGED)))

    def lift(self, record: Record) -> State:
        state = self.empty
        if not record.kind.add:
            return state
        named = [column for column in self.columns if record.names(column.name)]
        state.update({column.name: record.values[column.name] for column in named})
        state[self.word] = sum(bit_of(column) for column in named)
        return state

    def combine(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> State:
        named = newer.get(self.word) or 0
        state = {c.name: (newer if named & bit_of(c) else older)[c.name] for c in self.columns}
        return {**state, self.word: (older.get(self.word) or 0) | named}

    def combine_all(self, states: Sequence[Mapping[str, Any]]) -> State:
        words = self._words(states)
        values = {column.name: _latest(column, words, states) for column in self.columns}
        return {**values, self.word: reduce(or_, words)}

    def _words(self, states: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [state.get(self.word) or 0 for state in states]

    def _joined_word(self, states: Sequence[Mapping[str, Any]]) -> State:
        return {self.word: reduce(or_, self._words(states))}

    def _latest_value(self, column: Column, states: Sequence[Mapping[str, Any]]) -> State:
        return {column.name: _latest(column, self._words(states), states)}

    def fold_log(self, records: LogRecords) -> State:
        state, word = self.empty, 0
        for column in self.columns:
            places = self.part_of(column).places(records)
            if places:
                state[column.name] = records.column(column.name)[places[-1]]
                word |= bit_of(column)
        return {**state, self.word: word}


def _latest(column: Column, words: Sequence[Any], states: Sequence[Mapping[str, Any]]) -> Any:
    """Return the value of the last state that named the column by ``words``; of the first one where none did."""
    bit = bit_of(column)
    latest = next((place for place in range(len(states) - 1, 0, -1) if words[place] & bit), 0)
    return states[latest][column.name]
