"""Runs of many records, made in this process of whole columns and written as Spark's merges write them
(docs/decisions/0044).

What becomes of a record by itself is asked of the rules once for all records of one form
(``app.core.plan.record_forms``). The state rows of those whose key comes again are combined, by whole columns as well
(``app.storage.combined_columns``); where columns cannot tell, these records are folded one by one, if they are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_forms import Lift, NotByForm, NullMatters, RecordForm, ValueOf, lifts_of, state_of
from app.core.rules.accumulators import Sum
from app.core.rules.rule import State
from app.core.table.history import Batch, Run
from app.core.table.keys import partition_text
from app.core.table.named_columns import named_words, names_in
from app.core.table.records import KIND_COLUMN, TOKEN_COLUMN, RowKind
from app.core.table.schema import TableSchema
from app.core.types.kinds import Family
from app.storage.combined_columns import Allowance, ColumnSteps, combined
from app.storage.folded_runs import RecordsByToken
from app.storage.layout import Warehouse
from app.storage.named_files import file_of_batch, opened_parquet
from app.storage.run_files import MANY_ROWS, LeftToSpark, row_groups, run_schema, state_table, write_run_file
from app.storage.staging import read_batch, staged_record
from app.storage.tokens import Tokens, tokens_of

MOST_FOLDED_VALUES: Final = 100_000  # of records that columns cannot tell of, times the columns of a state row: 0.2 s
MOST_FOLDED_BYTES: Final = 2**20  # of these in memory; as Python's objects some hundred times as much at worst
MOST_FORMS: Final = 1_000  # that a rule is asked about: some milliseconds
MOST_ASKED: Final = 40  # columns of which a rule wants to know whether they are null
MOST_PARTITIONS: Final = 100
_NULL_BYTES = 5  # of a value in memory that takes nearly nothing in a file
_MOST_COUNTED = 2**20  # codes that are found by counting; more are sorted

Places = npt.NDArray[np.int64]


def write_lifted_runs(
    warehouse: Warehouse,
    table_id: str,
    folder: str,
    plan: MergePlan,
    batches: Sequence[Batch],
    now: int,
    most_bytes: int,
) -> tuple[Run, ...]:
    """Write the state rows of the records of ``batches``, which were written under the plan's schema, at ``now`` (epoch
    seconds) as a run of one file below ``folder``, or one in each partition. They are durable after ``sync_runs``.

    Raises ``LeftToSpark`` where the records take more than ``most_bytes`` in memory, or a rule needs the values of
    more than a few; ``DamagedFile`` and ``TokenShared``; what else it raises, of values that Arrow
    or Python cannot hold, says nothing about the batches.
    """
    schema = plan.schema
    if any(column.type.family is Family.FLOATING for column in schema.key_columns):
        raise LeftToSpark("-0.0 and 0.0 are one key")
    in_order = sorted(batches, key=lambda batch: batch.number)
    _check_size(warehouse, in_order, most_bytes)
    tokens = np.concatenate([_tokens(warehouse, batch, schema) for batch in in_order])
    order = np.argsort(tokens, kind="stable")
    again = _come_again(tokens[order])
    if again.any() and not _folds_alike(plan):
        raise LeftToSpark("keys come several times")
    rows = pa.concat_tables([read_batch(warehouse, batch, schema) for batch in in_order]).combine_chunks()
    states = _lifted(plan, rows, order[~again], tokens, now)
    if again.any():
        others = _folded(plan, in_order, rows, order[again], tokens, now)
        whole = pa.concat_tables([states, others])
        states = whole.take(pa.array(np.argsort(whole[TOKEN_COLUMN].to_numpy())))
    return tuple(_write(warehouse, table_id, folder, plan, states, batches[0].schema_id))


def _folds_alike(plan: MergePlan) -> bool:
    """Whether a fold of several records gives the very bytes that Spark's gives: unions of sketches do not, and sums of
    binary fractions are rounded at other steps.
    """
    sums = [rule.column.type.family for rule in plan.rules if isinstance(rule, Sum)]
    return not plan.sketches and Family.FLOATING not in sums


def _check_size(warehouse: Warehouse, batches: Sequence[Batch], most_bytes: int) -> None:
    """Raises ``LeftToSpark`` for more in memory than that, as footers say it: staging files have no dictionaries."""
    size = 0
    for batch in batches:
        with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
            groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
            chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
        size += sum(chunk.total_uncompressed_size + _NULL_BYTES * chunk.num_values for chunk in chunks)
        if size > most_bytes:
            raise LeftToSpark(f"more than {most_bytes} bytes")


def _tokens(warehouse: Warehouse, batch: Batch, schema: TableSchema) -> Tokens:
    with opened_parquet(warehouse, file_of_batch(batch)) as parquet:
        return tokens_of(schema, parquet.read(list(schema.primary_key), use_threads=False))


def _come_again(ordered: Tokens) -> npt.NDArray[np.bool_]:
    """Which of the tokens, in ascending order, are there several times."""
    same, again = ordered[1:] == ordered[:-1], np.zeros(len(ordered), dtype=bool)
    again[1:] |= same
    again[:-1] |= same
    return again


def _lifted(plan: MergePlan, rows: pa.Table, places: Places, tokens: Tokens, now: int) -> pa.Table:
    """The state rows of the records at ``places``, in that order, each by itself."""
    if not len(places):
        return run_schema(plan).empty_table()
    records = _Records(plan.schema, rows, places)
    columns: dict[str, pa.Array] = {TOKEN_COLUMN: pa.array(tokens[places])}
    columns |= {name: records.values(name) for name in plan.schema.primary_key}
    types = {field.name: field.type for field in run_schema(plan)}
    for lift in lifts_of(plan, now):
        found, states = records.states(lift)
        for name in states[0]:
            columns[name] = records.column([state[name] for state in states], found, types[name])
    return pa.table([columns[name] for name in types], schema=run_schema(plan))


class _Records:
    """Records of which some, at ``places``, are looked at, by the form that they have."""

    def __init__(self, schema: TableSchema, rows: pa.Table, places: Places) -> None:
        self._schema = schema
        self._rows = rows
        self._places = places
        self._told, self._found = self._kinds_and_names()
        if len(self._told) > MOST_FORMS:
            raise LeftToSpark("records name many sets of columns")
        # Of a column that is null everywhere or nowhere nobody needs to ask in which records.
        nulls = {name: rows[name].null_count for name in schema.by_name}
        self._known = {name: bool(count) for name, count in nulls.items() if count in {0, rows.num_rows}}

    def _kinds_and_names(self) -> tuple[list[tuple[RowKind, frozenset[str] | None]], Places]:
        """The kinds and names that there are together, and which of them each record has."""
        words = named_words(self._schema)
        columns = [self._rows[name].fill_null(0).to_numpy()[self._places] for name in (KIND_COLUMN, *words)]
        found = np.zeros(len(self._places), np.int64)
        for column in columns:
            there, places = np.unique(column, return_inverse=True)
            _, found = _numbered(found * len(there) + places)
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
        there, found = _numbered(codes)
        if len(there) > MOST_FORMS:
            raise LeftToSpark("records have many forms")
        return found, [self._form(code, asked) for code in there.tolist()]

    def _form(self, code: int, asked: Sequence[str]) -> RecordForm:
        bits = {name: bool(code >> place & 1) for place, name in enumerate(reversed(asked))}
        return RecordForm(*self._told[code >> len(asked)], {**self._known, **bits})

    def _is_null(self, name: str) -> npt.NDArray[np.bool_]:
        return np.asarray(self._rows[name].is_null().to_numpy()[self._places])

    def values(self, name: str, kept: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """The records' values of a column, null in those that are not ``kept``."""
        column = self._rows[name].chunk(0)
        return column.take(pa.array(self._places, mask=None if kept is None or kept.all() else ~kept))

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


def _numbered(codes: Places) -> tuple[Places, Places]:
    """The codes that there are, in ascending order, and the place among them of each of ``codes``."""
    if not len(codes) or codes.max() >= _MOST_COUNTED:
        there, found = np.unique(codes, return_inverse=True)
        return there, found
    there = np.flatnonzero(np.bincount(codes))
    places = np.zeros(codes.max() + 1, np.int64)
    places[there] = np.arange(len(there))
    return there, places[codes]


def _folded(
    plan: MergePlan, batches: Sequence[Batch], rows: pa.Table, places: Places, tokens: Tokens, now: int
) -> pa.Table:
    """The state rows of the records at ``places``, all of each key, by token and arrival."""
    try:
        lifted = _lifted(plan, rows, places, tokens, now)
        return combined(ColumnSteps.of_merge(plan), tokens[places], lifted, Allowance(MOST_FOLDED_VALUES))
    except LeftToSpark:
        if len(places) * len(plan.state_columns) > MOST_FOLDED_VALUES:
            raise
    return _folded_one_by_one(plan, batches, rows.take(pa.array(places)), places, tokens, now)


def _folded_one_by_one(
    plan: MergePlan, batches: Sequence[Batch], rows: pa.Table, places: Places, tokens: Tokens, now: int
) -> pa.Table:
    """As ``_folded``, of the records in ``rows``."""
    if rows.nbytes > MOST_FOLDED_BYTES:
        raise LeftToSpark("records of keys that come several times are large")
    numbers = np.repeat([batch.number for batch in batches], [batch.records for batch in batches])[places]
    found = RecordsByToken(plan.schema)
    for token, number, row in zip(tokens[places].tolist(), numbers.tolist(), rows.to_pylist(), strict=True):
        found.add(token, staged_record(plan.schema, number, row))
    return state_table(plan, found.states(plan, now))


def _write(
    warehouse: Warehouse, table_id: str, folder: str, plan: MergePlan, states: pa.Table, schema_id: int
) -> Iterator[Run]:
    for place, (partition, rows) in enumerate(_partitions(plan.schema, states)):
        inner = folder if partition is None else f"{folder}.{place:x}"
        written = write_run_file(warehouse, table_id, inner, plan, row_groups([rows]), MANY_ROWS)
        if written is not None:
            yield Run(inner, schema_id, (written.file,), partition, live_rows=written.live_rows)


def _partitions(schema: TableSchema, states: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows of each partition with its text; all together where the table has none."""
    if not schema.partition_keys:
        yield None, states
        return
    codes = np.zeros(len(states), np.int64)
    for name in schema.partition_keys:
        values = states[name].combine_chunks().dictionary_encode(null_encoding="encode")
        _, codes = _numbered(codes * len(values.dictionary) + values.indices.to_numpy(zero_copy_only=False))
    if codes.max() >= MOST_PARTITIONS:
        raise LeftToSpark("records of many partitions")
    for code in range(codes.max() + 1):
        rows = states.filter(pa.array(codes == code))
        [values] = rows.select(list(schema.partition_keys)).slice(0, 1).to_pylist()
        yield partition_text(schema, values), rows
