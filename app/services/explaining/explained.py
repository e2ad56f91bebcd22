"""What an explanation answers: where it starts, its steps, and where each column's value came from (design §6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.core.plan.explaining.explained_fold import ColumnStep, Row
from app.core.table.history import BatchState


class StepKind(StrEnum):
    """What a step of an explanation is."""

    RECORD = "record"  # a record of the key was folded
    SCHEMA = "schema"  # the table was altered
    ROLLBACK = "rollback"  # the table went back to an earlier snapshot
    PARTITION_DROP = "partition-drop"  # the partition of the key was dropped, or expired
    FORGETTING = "forgetting"  # keys were forgotten, perhaps this one: nothing of before is known
    FORGOTTEN = "forgotten"  # a compaction forgot the removed row


@dataclass(frozen=True)
class RecordPlace:
    """A record: its batch, and its position in it, from 0."""

    batch: str
    number: int
    position: int


@dataclass(frozen=True)
class RecordStep(RecordPlace):
    """A record, and how it came into the table. ``merge_id`` and ``snapshot`` are None while it is staged."""

    state: BatchState
    accepted_at: datetime
    accepted_by: str
    merge_id: str | None
    snapshot: int | None
    kind: str


@dataclass(frozen=True)
class ExplainedStep:
    """One step. ``record`` is None of what is none, ``columns`` are what it did to each, ``exists`` whether there is a
    row after it; ``undone`` are the newest records that a rollback took out of the table, ``undone_left_out`` how many
    more.

    ``late``: it is older, by sequence, than what some column held; ``ignored``: it changed no column that it had its
    say of.
    """

    what: StepKind
    words: str
    snapshot: int | None
    at: datetime | None
    exists: bool
    record: RecordStep | None = None
    columns: Sequence[ColumnStep] = ()
    late: bool = False
    ignored: bool = False
    undone: Sequence[RecordStep] = ()
    undone_left_out: int = 0


@dataclass(frozen=True)
class Start:
    """What the steps start from: the row in ``snapshot``, None before the first batch, and why it is this one."""

    snapshot: int | None
    committed_at: datetime | None
    words: str
    row: Row | None


@dataclass(frozen=True)
class ExplainedColumn:
    """Where the value of a column came from: ``records``, newest last, and ``left_out`` older ones; ``start``: from
    what the steps start from, too or alone.
    """

    column: str
    value: Any
    start: bool
    records: Sequence[RecordPlace]
    left_out: int = 0


@dataclass(frozen=True)
class ExplainedRow:
    """A key, the row that a lookup answers, and how it came to that. ``snapshot`` is the one that it is explained at.

    ``exact``: the steps come to that row; else ``inexact`` says why they may not. ``left_out`` records came before the
    first step: ``before`` asks for them.
    """

    key: Row
    snapshot: int | None
    row: Row | None
    exact: bool
    inexact: str | None
    columns: Sequence[ExplainedColumn]
    start: Start
    steps: Sequence[ExplainedStep]
    left_out: int
    before: str | None
