"""The sequences that older runs keep of the keys of a merge: those that its records are late against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from app.core.plan.merging.late_lanes import Lane
from app.core.plan.merging.merge_plan import compile_plan
from app.core.rules.log_records import member_of
from app.core.rules.order import OrderField
from app.core.rules.participation import Names
from app.core.rules.register import OrderPlace
from app.core.rules.replays.replay import LOG
from app.core.table.history import Run
from app.core.table.named_columns import bit_of, word_of
from app.core.table.schema import Column
from app.files.arrow import arrow_type
from app.files.layout import Warehouse
from app.files.named_files import file_of_run, opened_parquet
from app.files.reading import TokenRange, batches_of, may_hold, only_touched, tokens_in
from app.files.tokens import Tokens
from app.kernel.tasks import Task

Place = tuple[str, str | None]
"""A column of runs, and its member where it is a ROW."""


@dataclass(frozen=True)
class OlderOrders:
    """Reads the runs of a task, which are older than its batches, for the lanes ``lanes``.

    Logs are read, too, if rows are replayed: a row shows nothing of the records that removed it.
    """

    warehouse: Warehouse
    task: Task
    lanes: Sequence[Lane]

    def of_keys(self, touched: Tokens) -> tuple[Tokens, Mapping[Place, pa.Array]]:
        """Return the tokens of older rows of the keys, and of entries of their logs, and their values at each place."""
        fields = {place[1:]: place[0] for lane in self.lanes for place in places_of(lane)}
        parts = {place: [pa.array([], arrow_type(field.column.type))] for place, field in fields.items()}
        kept = [np.empty(0, dtype=np.int64)]
        logged = compile_plan(self.task.schema).replay is not None
        tokens = TokenRange(int(touched[0]), int(touched[-1]))
        for run in self.task.runs:
            names = {column.id: column.name for column in self.task.schema_at(run.schema_id).columns}
            present = self._columns(run)
            stored = {
                place: names.get(field.column.id, place[0]) if place[1] is None else place[0]
                for place, field in fields.items()
            }
            wanted = sorted({*stored.values(), *([LOG] if logged else [])} & present)
            read = batches_of(self.warehouse, self.task.table_id, run, tokens, wanted, partial(may_hold, touched))
            for batch in (only_touched(batch, touched) for batch in read):
                kept.append(tokens_in(batch))
                for place, field in fields.items():
                    parts[place].append(_stored(batch, stored[place], place[1], arrow_type(field.column.type)))
                if LOG in wanted:
                    log = batch.column(LOG)
                    kept.append(tokens_in(batch)[pc.list_parent_indices(log).to_numpy(zero_copy_only=False)])
                    for place, values in self._logged(log.flatten(), fields):
                        parts[place].append(values)
        return np.concatenate(kept), {place: pa.concat_arrays(arrays) for place, arrays in parts.items()}

    def _columns(self, run: Run) -> set[str]:
        """Return the names of the columns in a run's files."""
        with opened_parquet(self.warehouse, file_of_run(self.task.table_id, run.id, run.files[0])) as parquet:
            return set(parquet.schema_arrow.names)

    def _logged(self, entries: pa.StructArray, fields: Mapping[Place, OrderField]) -> Iterator[tuple[Place, pa.Array]]:
        """Yield each place and its values in entries of logs; null in those that do not name the lane's sequence."""
        for lane in self.lanes:
            conditions = [condition for condition in lane.part.conditions if isinstance(condition, Names)]
            unnamed = np.zeros(len(entries), dtype=bool)
            for column in (column for condition in conditions for column in condition.columns):
                unnamed |= _leaves_out(entries, column)
            for place in {place[1:] for place in places_of(lane)}:
                column = fields[place].column
                values = _member(entries, member_of(column), arrow_type(column.type))
                yield place, pc.if_else(pa.array(unnamed), pa.scalar(None, values.type), values)


def places_of(lane: Lane) -> Iterator[OrderPlace]:
    """Yield the columns of older rows that decide whether a record is late, or changes something."""
    for places in lane.places:
        yield from places
    for register in lane.kept or ():
        yield from register.order_places


def _leaves_out(entries: pa.StructArray, column: Column) -> npt.NDArray[np.bool_]:
    """Return which entries of logs do not name the column."""
    if entries.type.get_field_index(word_of(column)) < 0:
        return np.zeros(len(entries), dtype=bool)
    words = pc.struct_field(entries, word_of(column)).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(words & np.int64(bit_of(column)) == 0)


def _stored(batch: pa.RecordBatch, name: str, member: str | None, to_type: pa.DataType) -> pa.Array:
    """Return a column of older rows, or a member of it; null if the run has none."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        return pa.nulls(len(batch), to_type)
    return batch.column(place).cast(to_type) if member is None else _member(batch.column(place), member, to_type)


def _member(values: pa.StructArray, member: str, to_type: pa.DataType) -> pa.Array:
    """Return a member of a column, null if it has none."""
    if values.type.get_field_index(member) < 0:
        return pa.nulls(len(values), to_type)
    return pc.struct_field(values, member).cast(to_type)
