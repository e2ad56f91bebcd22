"""The versions in which other engines read a table, as the catalog decides them (docs/decisions/0031)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self

from app.core.table.history import ChangelogFile, Run
from app.core.table.schema import TableSchema


class Format(StrEnum):
    """The formats in which other engines read a table. The versions of each format are independent of the others.

    ``publish`` is the option that turns publication on, ``interval`` the option for the largest lag of the newest
    version, ``retained`` how long a version is kept after the next.
    """

    publish: str
    interval: str
    retained: str

    DELTA = "delta", "delta.publish", "delta.publish.interval", "delta.log-retained"
    ICEBERG = "iceberg", "iceberg.publish", "iceberg.publish.interval", "iceberg.snapshots-retained"

    def __new__(cls, value: str, publish: str, interval: str, retained: str) -> Self:
        """Return the format with its options."""
        made = str.__new__(cls, value)
        made._value_ = value
        made.publish, made.interval, made.retained = publish, interval, retained
        return made


def formats_of(schema: TableSchema) -> list[Format]:
    """Return the forms that a table is published in."""
    return [form for form in Format if schema.parsed[form.publish]]


@dataclass(frozen=True)
class FileCounts:
    """The totals of a version's files: rows, including deleted ones, and the deleted places in files of deletes."""

    data_files: int
    rows: int
    delete_files: int
    deleted_rows: int


@dataclass(frozen=True)
class PublishedVersion:
    """One version: the rows of snapshot ``as_of`` under the columns of ``schema_id``.

    Runs hold the rows of snapshot ``base_id``; changelogs say what the merges after it changed. ``snapshot_id`` is the
    snapshot that keeps the runs: the base itself where that has one run of each partition, else one that holds what a
    full compaction of the base left, below newer runs. ``written_at`` is when its files were there, None while they
    are not. ``counts`` are known then, where the format says them.
    """

    table_id: str
    format: Format
    version: int
    snapshot_id: int
    base_id: int
    as_of: int
    schema_id: int
    committed_at: datetime
    written_at: datetime | None = None
    counts: FileCounts | None = None

    @property
    def keeps(self) -> set[int]:
        """The snapshots whose files the version names."""
        return named_snapshots(self.snapshot_id, self.base_id, self.as_of)


def named_snapshots(snapshot_id: int, base_id: int, as_of: int) -> set[int]:
    """Return the snapshots whose files are named by a version of ``as_of`` that begins from ``base_id``."""
    return {snapshot_id, *range(base_id + 1, as_of + 1)}


@dataclass(frozen=True)
class Changes:
    """The changes of a merge: the changelog files of its snapshot, written under the schema ``schema_id``."""

    snapshot_id: int
    schema_id: int
    files: tuple[ChangelogFile, ...]


@dataclass(frozen=True)
class Published:
    """The content of a published version: its runs, and the changes on top of them, oldest first.

    ``schema`` is the table's at that time, ``written`` has by id the schemas that the files were written under.
    """

    version: PublishedVersion
    schema: TableSchema
    runs: Sequence[Run]
    changes: Sequence[Changes]
    written: Mapping[int, TableSchema]
