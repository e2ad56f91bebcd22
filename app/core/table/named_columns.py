"""Which columns a record names (docs/decisions/0022): one bit a column, by its id, in words of 64 bits.

A staging file has a column for each word that its table's columns need. By id, so that a rename changes nothing, and a
column that was added later is one that no earlier record names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from app.core.table.schema import Column, TableSchema

NAMED_COLUMN = "_kf_named"
WORD_BITS = 64
ALL_NAMED = -1  # every bit of a word

Words = Mapping[str, int]
"""By word its bits, as a signed number of 64 bits."""


def word_of(column: Column) -> str:
    """Return the word that says of the column."""
    return f"{NAMED_COLUMN}_{column.id // WORD_BITS}"


def words_of(columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the words that hold the bits of ``columns``."""
    return tuple(dict.fromkeys(word_of(column) for column in sorted(columns, key=lambda column: column.id)))


def named_words(schema: TableSchema) -> tuple[str, ...]:
    """Return the words in which records of the table say what they name; none if absent columns are null."""
    return words_of(schema.columns) if schema.absent_unchanged else ()


def bit_of(column: Column) -> int:
    """Return the number that has the column's bit in its word, signed."""
    bit = 1 << column.id % WORD_BITS
    return bit - (1 << WORD_BITS) if bit >> (WORD_BITS - 1) else bit


def words_naming(columns: Iterable[Column], names: Collection[str] | None) -> Words:
    """Return the words of a record that of ``columns`` names those in ``names``, all of them where that is None."""
    words: dict[str, int] = {}
    for column in columns:
        named = names is None or column.name in names
        words[word_of(column)] = words.get(word_of(column), 0) | (bit_of(column) if named else 0)
    return words


def names_in(schema: TableSchema, words: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the columns that a record with these ``words`` names; None, which is all of them, where the table's
    records do not say.
    """
    if not schema.absent_unchanged:
        return None
    return frozenset(column.name for column in schema.columns if (words.get(word_of(column)) or 0) & bit_of(column))
