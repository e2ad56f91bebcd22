"""Records: one staged change of one key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

KIND_COLUMN = "_kf_kind"
ARRIVAL_COLUMN = "_kf_arrival"
POSITION_COLUMN = "_kf_position"
TOKEN_COLUMN = "_kf_token"  # noqa: S105  # a column name
PARTITION_COLUMN = "_kf_partition"
POSITION_BITS = 24  # a batch holds fewer than 2**24 records, so arrival is one BIGINT


class RowKind(IntEnum):
    """The operation of a record; the numbers are Paimon's byte codes."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def add(self) -> bool:
        """Whether the kind adds (+I, +U); the others retract (-U, -D)."""
        return self in (RowKind.INSERT, RowKind.UPDATE_AFTER)

    @property
    def text(self) -> str:
        """``+I``, ``-U``, ``+U`` or ``-D``."""
        return _TEXT[self]


_TEXT = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}
KINDS_BY_TEXT: Mapping[str, RowKind] = {text: kind for kind, text in _TEXT.items()}
# What ``_kind`` takes in addition to these, in upper or lower case.
KINDS_BY_WORD: Mapping[str, RowKind] = {
    "insert": RowKind.INSERT,
    "update": RowKind.UPDATE_AFTER,
    "delete": RowKind.DELETE,
}


@dataclass(frozen=True)
class Record:
    """``values`` by column name, keys included; ``arrival`` is (batch number, position) as one number.

    ``named``: the columns that the record names, None for all; the others are null in it.
    """

    kind: RowKind
    values: Mapping[str, Any]
    arrival: int = 0
    named: frozenset[str] | None = None

    def names(self, column: str) -> bool:
        """Return whether the record names the column, even with null."""
        return self.named is None or column in self.named


def batch_number(placed: int) -> int:
    """Return the number of the batch of a record that has this place."""
    return placed >> POSITION_BITS


def arrival(batch_number: int, position: int) -> int:
    """Return the place of a record in its table's arrival order."""
    return batch_number << POSITION_BITS | position
