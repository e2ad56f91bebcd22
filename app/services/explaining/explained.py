"""The answer of an explanation: its start, its steps, the source of each value. ``Play`` folds a history to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from app.core.plan.explaining.explained_fold import ColumnStep, Row, Shown, size_of
from app.core.plan.explaining.row_story import RowStory
from app.core.plan.explaining.schema_words import changes_in_words
from app.core.plan.merging.fold import finish
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.answers import row_json
from app.core.table.history import BatchState, SnapshotKind
from app.core.table.records import Record
from app.services.explaining.kept_history import Base, KeptHistory, Taken, Turn


class StepKind(StrEnum):
    """The kinds of steps."""

    RECORD = "record"  # a record of the key was folded
    SCHEMA = "schema"  # the table was altered
    ROLLBACK = "rollback"  # the table went back to an earlier snapshot
    PARTITION_DROP = "partition-drop"  # the partition of the key was dropped, or expired
    FORGETTING = "forgetting"  # keys were forgotten, perhaps this one: its earlier records are unknown
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
    """One step. ``record`` is None for other kinds, ``columns`` are its effects, ``exists`` is whether there is a row
    afterwards. ``undone`` are the newest records that a rollback removed from the table, ``undone_left_out`` counts
    the others.

    ``late``: the record is older, by sequence, than the value of some column; ``ignored``: it changed none of its
    columns.
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
    """The beginning of the steps: the row in ``snapshot``, None before the first batch, and why this snapshot was
    chosen.
    """

    snapshot: int | None
    committed_at: datetime | None
    words: str
    row: Row | None


@dataclass(frozen=True)
class ExplainedColumn:
    """The sources of a column's value: ``records``, newest last, and ``left_out`` older ones; ``start`` if the value,
    or a part of it, comes from the start.
    """

    column: str
    value: Any
    start: bool
    records: Sequence[RecordPlace]
    left_out: int = 0


@dataclass(frozen=True)
class ExplainedRow:
    """A key, the row that a lookup answers, and its history, as of ``snapshot``.

    ``exact``: the steps lead to that row; else ``inexact`` says why they may not. ``left_out`` records came before the
    first step: ``before`` is the parameter that requests them.
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


# The steps of one answer have at most this size together, without the last one.
MOST_STEP_BYTES = 2**22
MOST_UNDONE = 100  # records of one rollback


@dataclass
class StepPage:
    """A page of steps while it is filled: its records, each with the events before it."""

    first: int  # the place of the first record of the page, among all
    until: int  # the place behind the last one
    groups: deque[tuple[int, list[ExplainedStep]]] = field(default_factory=deque)
    size: int = 0
    dropped: int = 0

    def add(self, steps: list[ExplainedStep]) -> None:
        """Add a record, and the events before it. Drop the oldest records if the page is too large."""
        size = sum(_size(step) for step in steps)
        self.groups.append((size, steps))
        self.size += size
        while self.size > MOST_STEP_BYTES and len(self.groups) > 1:
            self.size -= self.groups.popleft()[0]
            self.dropped += 1

    @property
    def steps(self) -> list[ExplainedStep]:
        """All of them, in order."""
        return [step for _, steps in self.groups for step in steps]


def _size(step: ExplainedStep) -> int:
    columns = sum(200 + size_of(column.before) + size_of(column.after) for column in step.columns)
    return 500 + columns + 300 * len(step.undone)


class Play:
    """The history from one base on, folded; ``page`` is None if only the final state is needed."""

    def __init__(self, history: KeptHistory, base: Base, shown: Shown, page: StepPage | None) -> None:
        self.history, self.base, self.page = history, base, page
        self.items = history.after(base.snapshot)
        records = [item for item in self.items if isinstance(item, Taken)]
        first = base.schema or (records[0].schema if records else history.view.table.schema)
        self.story = RowStory(compile_plan(first), base.state, shown)
        self.start = self.story.visible() if page is not None else None
        self._waiting: list[Record] = []
        self._events: list[ExplainedStep] = []
        self._place = 0
        self._last = base.snapshot
        for item in self.items:
            self._play(item)
        self._enter(history.view.plan)
        if page is not None and page.until >= self._place and self._events:
            page.add(self._events)

    def _play(self, item: Taken | Turn) -> None:
        if isinstance(item, Turn):
            self._turn(item)
            return
        self._look_for_forgotten(item.snapshot or self.history.until + 1)
        self._enter(compile_plan(item.schema))
        page = self.page
        if page is not None and page.first <= self._place < page.until:
            self._flush()
            page.add([*self._events, self._step(item)])
            self._events = []
        else:
            self._waiting.append(item.record)
            self._events = []
        self._place += 1

    def _flush(self) -> None:
        if self._waiting:
            self.story.fold_all(self._waiting)
            self._waiting = []

    def _enter(self, plan: MergePlan) -> None:
        old = self.story.plan
        if plan is old:
            return
        self._flush()
        self.story.enter(plan)
        words = changes_in_words(old.schema, plan.schema)
        if words:
            self._event(StepKind.SCHEMA, "the table was altered: " + "; ".join(words), None, None)

    def _look_for_forgotten(self, number: int) -> None:
        """Forget the deleted row if a compaction forgot it before the snapshot ``number``."""
        after, self._last = self._last, number
        if self.story.plan.row.retained is None or number <= after + 1:
            return
        self._flush()
        commit = self.history.forgotten(after, number) if self.story.hidden else None
        if commit is not None:
            self.story.forget()
            words = f"the compaction of snapshot {commit.snapshot_id} forgot the removed row (tombstone.time-retained)"
            self._event(StepKind.FORGOTTEN, words, commit.snapshot_id, commit.committed_at)

    def _turn(self, turn: Turn) -> None:
        self._look_for_forgotten(turn.rewrite.snapshot_id)
        rewrite = turn.rewrite
        if rewrite.kind is SnapshotKind.ROLLBACK:
            undone = [_record_step(taken) for taken in turn.undone[-MOST_UNDONE:]]
            count = len(turn.undone)
            words = f"rolled back to snapshot {rewrite.restored_from}" + (
                f": {count} record{'s' if count > 1 else ''} of this key undone" if count else ""
            )
            self._event(
                StepKind.ROLLBACK, words, rewrite.snapshot_id, rewrite.committed_at, undone, count - len(undone)
            )
            return
        self._flush()
        if rewrite.kind is SnapshotKind.FORGETTING:
            if self.story.state is None:  # a compaction forgets nothing of a key that has older state
                words = "keys of the table were forgotten, perhaps this one: then nothing from before is known"
                self._event(StepKind.FORGETTING, words, rewrite.snapshot_id, rewrite.committed_at)
            return
        self.story.forget()
        self._event(
            StepKind.PARTITION_DROP, "the partition of the key was dropped", rewrite.snapshot_id, rewrite.committed_at
        )

    def _event(
        self,
        what: StepKind,
        words: str,
        snapshot: int | None,
        at: datetime | None,
        undone: Sequence[RecordStep] = (),
        left_out: int = 0,
    ) -> None:
        if self.page is None:
            return
        self._flush()
        exists = self.story.visible() is not None
        step = ExplainedStep(what, words, snapshot, at, exists, undone=undone, undone_left_out=left_out)
        self._events.append(step)

    def _step(self, taken: Taken) -> ExplainedStep:
        step = self.story.step(taken.record)
        record = _record_step(taken)
        return ExplainedStep(
            StepKind.RECORD,
            f"record {taken.position} of batch {taken.batch.number}: {record.kind}",
            taken.snapshot,
            taken.batch.accepted_at,
            step.after is not None,
            record,
            step.columns,
            late=any(column.late for column in step.columns),
            ignored=step.before == step.after and any(column.ignored for column in step.columns),
        )

    def body(self) -> bytes | None:
        """Return the row after the history, as lookups answer it."""
        self._flush()
        row = None if self.story.state is None else finish(self.story.plan, self.story.state)
        return None if row is None else row_json(self.history.view.table.schema, row)


def _record_step(taken: Taken) -> RecordStep:
    batch = taken.batch
    return RecordStep(
        batch.id,
        batch.number,
        taken.position,
        BatchState.STAGED if taken.staged else BatchState.MERGED,
        batch.accepted_at,
        batch.accepted_by,
        None if taken.staged else batch.merge_id,
        taken.snapshot,
        taken.record.kind.text,
    )
