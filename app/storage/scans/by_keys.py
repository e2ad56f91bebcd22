"""Rows of many keys as whole columns, found as a scan finds them, and the Arrow stream that answers them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.core.plan.merging.merge_plan import MergePlan
from app.core.table.keys import Key
from app.core.table.schema import Column
from app.files.arrow import FOUND_COLUMN, answered_schema, arrow_type
from app.files.tokens import Tokens
from app.kernel.runs import states_table
from app.storage.scans.merging import FoundRows, Source, rows_of_window
from app.storage.scans.pairing import KeyedRows, paired
from app.storage.scans.shown import shown_schema

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StagedRows:
    """The state rows of those keys of a request that have staged records; their tokens are ascending."""

    tokens: Tokens
    rows: Sequence[Mapping[str, Any]]

    @classmethod
    def from_rows(cls, tokens: Tokens, rows: Sequence[Mapping[str, Any]]) -> StagedRows:
        """Return the ``rows`` of keys that have these tokens, sorted by token."""
        order = np.argsort(tokens, kind="stable")
        return cls(tokens[order], [rows[place] for place in order.tolist()])

    def states(self, plan: MergePlan) -> pa.Table:
        """Return the state rows under ``plan``, by token."""
        return states_table(plan, self.tokens, self.rows)


@dataclass(frozen=True)
class KeyRows:
    """The rows of some keys: which of ``rows`` each key has, or -1."""

    rows: pa.RecordBatch
    places: Places

    def size_bytes(self, times: Sequence[int]) -> int:
        """Return about how many bytes they take in an answer that has each key so often."""
        more = ((count - 1, place) for count, place in zip(times, self.places.tolist(), strict=True) if count > 1)
        return int(
            self.rows.nbytes + sum(count * self.rows.slice(place, 1).nbytes for count, place in more if place >= 0)
        )


def rows_of_keys(source: Source, stored: FoundRows, staged: StagedRows, keys: Sequence[Key], tokens: Tokens) -> KeyRows:
    """Return the rows of ``keys``, each once, with their ``tokens``. ``stored`` is what each run has of them, oldest
    first, with the number of its schema, ``staged`` what is newer; ``source`` answers the key columns, too.
    """
    schema = source.shown.schema
    rows = KeyedRows(np.empty(0, dtype=np.int64), _no_rows(source.columns))
    for of_rows, batch in rows_of_window(source, stored, staged):
        rows = KeyedRows(of_rows, batch)  # there is one at most
    order = np.argsort(tokens, kind="stable")
    columns = schema.key_columns
    values = [pa.array([key[at] for key in keys], arrow_type(column.type)) for at, column in enumerate(columns)]
    sorted_keys = pa.record_batch(values, names=[*schema.primary_key]).take(pa.array(order))
    one, other = paired(schema, KeyedRows(tokens[order], sorted_keys), rows)
    places = np.full(len(keys), -1, dtype=np.int64)
    places[order[one]] = other
    return KeyRows(rows.batch, places)


def keys_stream(
    columns: Sequence[Column], pieces: Sequence[KeyRows], places: Sequence[int], keys: Mapping[str, Sequence[Any]]
) -> bytes:
    """Return an Arrow stream of a row for each key: whether it is found, then its ``columns``, of which ``keys`` are
    known where it is not. ``pieces`` are the rows of the keys that are asked for, each once; ``places`` say which of
    them each is.
    """
    whole = pa.concat_batches([piece.rows for piece in pieces]) if pieces else _no_rows(columns)
    before = np.cumsum([0, *(piece.rows.num_rows for piece in pieces)])
    once = [np.where(piece.places < 0, -1, piece.places + start) for piece, start in zip(pieces, before, strict=False)]
    positions = np.concatenate([np.empty(0, dtype=np.int64), *once])[np.array(places, dtype=np.int64)]
    taken = whole.take(pa.array(positions, mask=positions < 0))
    fields = answered_schema(columns)
    arrays = [
        pa.array(keys[field.name], field.type) if field.name in keys else taken.column(field.name).cast(field.type)
        for field in fields
    ]
    schema = fields.insert(0, pa.field(FOUND_COLUMN, pa.bool_()))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(positions >= 0), *arrays], schema=schema))
    return sink.getvalue()


def _no_rows(columns: Sequence[Column]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=shown_schema(columns))
