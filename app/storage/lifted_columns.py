"""State rows of many records, each by itself, by whole columns: what becomes of a record is asked of the rules once for
all records of one form (``app.core.plan.record_forms``; docs/decisions/0044).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_forms import Lift, NotByForm, NullMatters, RecordForm, ValueOf, lifts_of, state_of
from app.core.rules.rule import State
from app.core.table.named_columns import named_words, names_in
from app.core.table.records import KIND_COLUMN, TOKEN_COLUMN, RowKind
from app.core.table.schema import TableSchema
from app.storage.combined_columns import whole
from app.storage.run_files import LeftToSpark, run_schema
from app.storage.tokens import Tokens

MOST_FORMS: Final = 1_000  # that a rule is asked about: some milliseconds
MOST_ASKED: Final = 40  # columns of which a rule wants to know whether they are null
_MOST_COUNTED = 2**20  # codes that are found by counting; more are sorted

Places = npt.NDArray[np.int64]


def lifted(plan: MergePlan, tokens: Tokens, rows: pa.Table, now: int) -> pa.Table:
    """The state rows of the records in ``rows``, which have ``tokens``, in that order, each by itself. Raises
    ``LeftToSpark``.
    """
    if not rows.num_rows:
        return run_schema(plan).empty_table()
    records = _Records(plan.schema, rows)
    columns: dict[str, pa.Array] = {TOKEN_COLUMN: pa.array(tokens)}
    columns |= {name: records.values(name) for name in plan.schema.primary_key}
    types = {field.name: field.type for field in run_schema(plan)}
    for lift in lifts_of(plan, now):
        found, states = records.states(lift)
        for name in states[0]:
            columns[name] = records.column([state[name] for state in states], found, types[name])
    return pa.table([columns[name] for name in types], schema=run_schema(plan))


class _Records:
    """Records, by the form that they have."""

    def __init__(self, schema: TableSchema, rows: pa.Table) -> None:
        self._schema = schema
        self._rows = rows
        self._told, self._found = self._kinds_and_names()
        if len(self._told) > MOST_FORMS:
            raise LeftToSpark("records name many sets of columns")
        # Of a column that is null everywhere or nowhere nobody needs to ask in which records.
        nulls = {name: rows[name].null_count for name in schema.by_name}
        self._known = {name: bool(count) for name, count in nulls.items() if count in {0, rows.num_rows}}

    def _kinds_and_names(self) -> tuple[list[tuple[RowKind, frozenset[str] | None]], Places]:
        """The kinds and names that there are together, and which of them each record has."""
        words = named_words(self._schema)
        columns = [self._rows[name].fill_null(0).to_numpy() for name in (KIND_COLUMN, *words)]
        found = np.zeros(self._rows.num_rows, np.int64)
        for column in columns:
            there, places = np.unique(column, return_inverse=True)
            _, found = numbered(found * len(there) + places)
        firsts = np.unique(found, return_index=True)[1]
        told = zip(*(column[firsts].tolist() for column in columns), strict=True)
        return [(RowKind(k), names_in(self._schema, dict(zip(words, of, strict=True)))) for k, *of in told], found

    def states(self, lift: Lift) -> tuple[Places, list[State]]:
        """What ``lift`` makes of the records: which of the states each of them has, and the states by form."""
        asked: list[str] = []
        while True:
            found, forms = self._forms(asked)
            try:
                return found, [state_of(lift, form) for form in forms]
            except NullMatters as error:
                asked.append(error.column)
            except NotByForm as error:
                raise LeftToSpark(str(error)) from error

    def _forms(self, asked: Sequence[str]) -> tuple[Places, list[RecordForm]]:
        """The forms that there are when it is told of the columns ``asked`` whether they are null, and which of them
        each record has.
        """
        if len(asked) > MOST_ASKED:
            raise LeftToSpark("a rule that asks of many columns whether they are null")
        codes = self._found
        for name in asked:
            codes = codes * 2 + self._is_null(name)
        there, found = numbered(codes)
        if len(there) > MOST_FORMS:
            raise LeftToSpark("records have many forms")
        return found, [self._form(code, asked) for code in there.tolist()]

    def _form(self, code: int, asked: Sequence[str]) -> RecordForm:
        bits = {name: bool(code >> place & 1) for place, name in enumerate(reversed(asked))}
        return RecordForm(*self._told[code >> len(asked)], {**self._known, **bits})

    def _is_null(self, name: str) -> npt.NDArray[np.bool_]:
        return np.asarray(self._rows[name].is_null().to_numpy())

    def values(self, name: str, kept: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """The records' values of a column, null in those that are not ``kept``."""
        column = whole(self._rows[name])
        if kept is None or kept.all():
            return column
        return column.take(pa.array(np.arange(len(column)), mask=~kept))

    def column(self, of_states: Sequence[Any], found: Places, data_type: pa.DataType) -> pa.Array:
        """The column that is ``of_states`` in the state of each form."""
        present = [value for value in of_states if value is not None]
        if not present:
            return pa.nulls(len(found), data_type)
        if all(isinstance(value, ValueOf) for value in present):
            [name, *others] = {value.column for value in present}
            if others or name not in self._schema.by_name:
                raise LeftToSpark(f"one column of {name} and {others}")
            return self.values(name, _there(of_states)[found]).cast(data_type)
        if all(isinstance(value, dict) for value in present):
            parts = [
                self.column([value and value[part.name] for value in of_states], found, part.type) for part in data_type
            ]
            return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=pa.array(~_there(of_states)[found]))
        if all(isinstance(value, bool | int) for value in present):
            return pa.array(of_states, data_type).take(pa.array(found))
        raise LeftToSpark("a value that is made of others")


def _there(values: Sequence[Any]) -> npt.NDArray[np.bool_]:
    return np.array([value is not None for value in values])


def numbered(codes: Places) -> tuple[Places, Places]:
    """The codes that there are, in ascending order, and the place among them of each of ``codes``."""
    if not len(codes) or codes.max() >= _MOST_COUNTED:
        there, found = np.unique(codes, return_inverse=True)
        return there, found
    there = np.flatnonzero(np.bincount(codes))
    places = np.zeros(codes.max() + 1, np.int64)
    places[there] = np.arange(len(there))
    return there, places[codes]
