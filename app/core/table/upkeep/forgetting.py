"""Forgettings: keys whose records and rows are removed from all files of a table (docs/decisions/0036).

The keys themselves are stored nowhere: a key is recognized by its token and a salted digest of its bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.core.table.keys import Key, normalised, tokens_of
from app.core.table.schema import TableSchema

MOST_KEYS: Final = 1000
BLANKED: Final = "this text was removed when keys of the table were forgotten, for it may have named one"


class ForgettingState(StrEnum):
    """How far a forgetting is."""

    PENDING = "pending"  # requested: nothing is forgotten yet
    FORGOTTEN = "forgotten"  # no read of the table finds the keys; files that hold them are not removed yet
    GONE = "gone"  # nothing that Keyfold keeps holds them


class RemnantKind(StrEnum):
    """The kind of a thing that may still hold a key that is being forgotten."""

    TASK = "task"  # a merge or compaction that runs: nothing is forgotten before it ends
    DAMAGED_FILE = "damaged-file"  # a file that cannot be read, so it is unknown whether it holds a key
    SET_ASIDE_EVENT = "set-aside-event"  # a change event with faults, so its key is unknown
    DELTA_VERSION = "delta-version"  # an older version of the Delta log, which keeps its files
    ICEBERG_VERSION = "iceberg-version"  # the same of Iceberg
    FILE = "file"  # a file that nothing names any more; readers that began before have a grace


@dataclass(frozen=True)
class Remnant:
    """Things of one kind that may still hold a key: their number, one by name, and when they end, if that is known."""

    kind: RemnantKind
    count: int
    example: str
    until: datetime | None = None


@dataclass(frozen=True)
class KeyPrint:
    """The fingerprint of a key: its token, and a salted digest."""

    token: int
    digest: str


@dataclass(frozen=True)
class Forgetting:
    """Keys of a table that are forgotten, of all records up to batch ``until_batch``.

    ``prints`` are stored until it is complete; ``keys`` is their number. ``snapshot_id`` is the first snapshot without
    them, None if there was nothing to forget. ``held`` are the numbers of older snapshots that still have them,
    because a published version does.
    """

    id: str
    table_id: str
    salt: str
    prints: Sequence[KeyPrint]
    keys: int
    until_batch: int
    requested_at: datetime
    requested_by: str = ""
    reference: str | None = None
    forgotten_at: datetime | None = None
    gone_at: datetime | None = None
    snapshot_id: int | None = None
    rows: int = 0
    records: int = 0
    held: Sequence[int] = ()
    remnants: Sequence[Remnant] = ()

    @property
    def state(self) -> ForgettingState:
        """How far it is."""
        if self.forgotten_at is None:
            return ForgettingState.PENDING
        return ForgettingState.FORGOTTEN if self.gone_at is None else ForgettingState.GONE


def prints_of(schema: TableSchema, keys: Sequence[Key], salt: str) -> list[KeyPrint]:
    """Return the salted fingerprint of each of ``keys`` (values in primary-key order)."""
    tokens = tokens_of(schema, keys)
    return [KeyPrint(token, _digest(schema, key, salt)) for token, key in zip(tokens, keys, strict=True)]


def _digest(schema: TableSchema, key: Key, salt: str) -> str:
    """Return the digest of the bytes that Spark hashes: equal keys have equal bytes, and a null has none."""
    digest = hashlib.blake2b(digest_size=16, key=bytes.fromhex(salt))
    for column, (data_type, entry, _), value in zip(schema.key_columns, schema.key_types, key, strict=True):
        if value is None or entry.hashed is None:
            digest.update(b"-")
            continue
        content = entry.hashed(normalised(column, value), data_type)
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class SaltedPrints:
    """Prints of keys, made with ``salt``: they identify keys without storing them."""

    salt: str
    prints: tuple[KeyPrint, ...]


@dataclass(frozen=True)
class Sought:
    """The keys of some forgettings, as they are looked for in files."""

    keys: tuple[SaltedPrints, ...] = ()

    @classmethod
    def from_forgettings(cls, forgettings: Iterable[Forgetting]) -> Sought:
        """Return the keys of ``forgettings``."""
        return cls(tuple(SaltedPrints(forgetting.salt, tuple(forgetting.prints)) for forgetting in forgettings))

    @property
    def tokens(self) -> Collection[int]:
        """Their tokens."""
        return {key_print.token for salted in self.keys for key_print in salted.prints}

    def between(self, first: int, last: int) -> Sought:
        """Return those whose tokens are ``first``, ``last`` or between them."""
        near = (
            SaltedPrints(
                salted.salt, tuple(key_print for key_print in salted.prints if first <= key_print.token <= last)
            )
            for salted in self.keys
        )
        return Sought(tuple(salted for salted in near if salted.prints))

    def has(self, schema: TableSchema, key: Key) -> bool:
        """Return whether ``key``, whose token is one of ``tokens``, is one of them."""
        return any(prints_of(schema, [key], salted.salt)[0] in salted.prints for salted in self.keys)
