"""Which columns uploaded records name, as the words of a staging file (docs/decisions/0022)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from app.core.table.named_columns import bit_of, word_of, words_naming, words_of
from app.core.table.schema import Column

Words = Mapping[str, np.ndarray[Any, np.dtype[np.int64]]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def words_of_members(columns: Sequence[Column], records: Iterable[Collection[str]]) -> Words:
    """Return the words of records whose members differ: there are few sets of them, however many records."""
    places: dict[tuple[str, ...], int] = {}
    index = np.array([places.setdefault(tuple(record), len(places)) for record in records], np.int64)
    bits = {column.name: (word_of(column), bit_of(column)) for column in columns}
    words = {word: np.zeros(len(places), np.int64) for word in words_of(columns)}
    for place, members in enumerate(places):
        for name in members:
            if name in bits:
                word, bit = bits[name]
                words[word][place] |= bit
    return {word: bitmap[index] for word, bitmap in words.items()}


def words_of_columns(columns: Sequence[Column], names: Collection[str], rows: int) -> Words:
    """Return the bit masks of ``rows`` records that all name the columns ``names``."""
    return {word: np.full(rows, bits, np.int64) for word, bits in words_naming(columns, names).items()}


def without_nulls(columns: Sequence[Column], words: Words, present: Mapping[str, Mask]) -> Words:
    """Return ``words`` in which a record names only the columns that it has a value for: ``present`` by column."""
    kept = dict(words)
    for column in columns:
        if column.name in present:
            absent = np.where(present[column.name], np.int64(0), np.int64(bit_of(column)))
            kept[word_of(column)] = kept[word_of(column)] & ~absent
    return kept


def naming(words: Words, column: Column) -> Mask:
    """Return for each record whether it names the column."""
    named: Mask = (words[word_of(column)] & np.int64(bit_of(column))) != 0
    return named
