"""Groups rows by key: in the order of a run (token, then key, then age), with the place where each key begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.core.table.keys import normalised
from app.core.table.schema import Column, TableSchema
from app.core.types.kinds import Family
from app.files.tokens import Tokens
from app.kernel.columns import Places, Truths


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows by key. ``order``: the rows by token, key and age; ``starts``: the places in it at which a key begins."""

    tokens: Tokens
    order: Places
    starts: Places

    @cached_property
    def counts(self) -> Places:
        """How many rows each key has."""
        return np.diff(self.starts, append=len(self.order))

    @cached_property
    def key_tokens(self) -> Tokens:
        """The token of each key."""
        return self.tokens[self.order[self.starts]]

    @cached_property
    def numbers(self) -> Places:
        """The number of the key of each row of the table, in the table's own order."""
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.repeat(np.arange(len(self.starts)), self.counts)
        return numbers


def grouped(schema: TableSchema, tokens: Tokens, rows: pa.Table) -> Groups:
    """Return the keys of ``rows``, which are in the order of age and have ``tokens``.

    Keys that share a token are distinguished by their values; NaN is one value, and 0.0 is -0.0.
    """
    order = np.argsort(tokens, kind="stable")
    ordered = tokens[order]
    again = np.append(False, ordered[1:] == ordered[:-1])
    if again.any():
        places = np.flatnonzero(again)
        differ = _differ(schema, rows, order[places - 1], order[places])
        if differ.any():
            return _with_shared(schema, tokens, rows, np.unique(ordered[places[differ]]))
    return Groups(tokens, order, np.flatnonzero(~again))


def _differ(schema: TableSchema, rows: pa.Table, ones: Places, others: Places) -> Truths:
    unequal = np.zeros(len(ones), dtype=bool)
    for column in schema.key_columns:
        values = rows.column(column.name).combine_chunks()
        unequal |= ~_same(column, values.take(pa.array(ones)), values.take(pa.array(others)))
    return unequal


def _same(column: Column, ones: pa.Array, others: pa.Array) -> Truths:
    same = pc.or_(pc.fill_null(pc.equal(ones, others), False), pc.and_(ones.is_null(), others.is_null()))
    if column.type.family is Family.FLOATING:
        both = pc.and_(pc.fill_null(pc.is_nan(ones), False), pc.fill_null(pc.is_nan(others), False))
        same = pc.or_(same, both)
    return np.asarray(same)


def _with_shared(schema: TableSchema, tokens: Tokens, rows: pa.Table, shared: Tokens) -> Groups:
    """Do as ``grouped`` if several keys share one of the tokens ``shared``: these are ordered by their values."""
    places = np.flatnonzero(np.isin(tokens, shared))
    names = list(schema.primary_key)
    keys = [_rank(schema, tuple(row[name] for name in names)) for row in rows.select(names).take(places).to_pylist()]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    ranks = np.zeros(len(tokens), np.int64)
    ranks[places] = [numbers[key] for key in keys]
    order = np.lexsort((ranks, tokens))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (tokens[order][1:] != tokens[order][:-1]) | (ranks[order][1:] != ranks[order][:-1])
    return Groups(tokens, order, np.flatnonzero(first))


def _rank(schema: TableSchema, key: Sequence[Any]) -> tuple[Any, ...]:
    """Return the sort key of a primary key, null first; equal for equal keys."""
    return tuple(
        (0,) if value is None else (1, column.type.entry.rank(normalised(column, value)))
        for column, value in zip(schema.key_columns, key, strict=True)
    )


def normalised_keys(schema: TableSchema, rows: pa.Table) -> pa.Table:
    """Return ``rows`` with each key value in the one form that equal keys share."""
    for column in schema.key_columns:
        if column.type.family is Family.FLOATING:
            place = rows.schema.get_field_index(column.name)
            values = rows.column(place)
            rows = rows.set_column(place, rows.schema.field(place), pc.add(values, pa.scalar(0.0, values.type)))
    return rows
