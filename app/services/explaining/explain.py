"""Why a row shows its values: the kept records of its key, folded again step by step."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.snapshots.commits import Commit
from app.core.errors import FaultCode, Invalid, NotFound, Resource, Violation, not_found
from app.core.plan.explaining.explained_fold import Row, Shown
from app.core.plan.explaining.sources import NOTHING
from app.core.plan.records.integers import integers_of
from app.core.table.history import Table
from app.core.table.keys import key_from_text
from app.core.table.options.entries import Integers
from app.services.explaining.explained import ExplainedColumn, ExplainedRow, Play, RecordPlace, Start, StepPage
from app.services.explaining.history import KEY_ROOM
from app.services.explaining.kept_history import KeptHistory, Known, Taken, known_history
from app.services.rows.lookups import FoundRow, existing_row, find, spelled, view_at, wanted_columns
from app.services.rows.views import View, view_of
from app.services.shared.damage import read_again
from app.storage.images import Images

DEFAULT_STEPS = 50
MOST_STEPS = 200
MOST_SOURCES = 100  # records of one accumulated value
NOT_SUM = (
    "the records that are kept do not come to what a lookup answers: a compaction forgot something older, or sums of"
    " FLOAT or DOUBLE were rounded in another order"
)


@dataclass(frozen=True)
class Question:
    """A request to explain a row: ``texts`` are its key values in primary-key order, ``columns`` those to explain
    (None: all), ``as_of`` a snapshot's number or tag, or a time. At most ``steps`` records are answered, all earlier
    than ``before``.
    """

    texts: Sequence[str]
    columns: Sequence[str] | None = None
    as_of: str | None = None
    steps: int = DEFAULT_STEPS
    before: str | None = None
    integers: Integers | None = None


def explain_row(database: CatalogDatabase, images: Images, name: tuple[str, str], question: Question) -> ExplainedRow:
    """Return the explanation of one row of the table ``name`` (database, table), with staged records unless there is
    an ``as_of``.

    Raise ``Invalid`` for an impossible key, column, time or place, ``NotFound`` for a snapshot that does not exist or
    has expired, and for a key without any known record (ROW_NOT_FOUND), ``DamagedFile``.
    """

    def explained() -> ExplainedRow:
        with database.reading() as repository:
            table = repository.tables.get(*name)
            view, version = _view(repository, table, question.as_of)
            known = known_history(repository, table, view.snapshot_id or 0)
        return _explained(database, images, view, version, known, question)

    return read_again(explained)  # a sweep moves what is kept to other files


def _explained(
    database: CatalogDatabase, images: Images, view: View, version: str | None, known: Known, question: Question
) -> ExplainedRow:
    """Return the row explained. Read files outside of transactions, which would keep PostgreSQL from vacuuming."""
    key = key_from_text(view.table.schema, question.texts)
    names = wanted_columns(view, question.columns, "/column")
    lookup = find(view, images, key, view.columns)
    history = KeptHistory(database, images, view, key, known)
    if history.nothing and not lookup.written:
        existing_row(lookup, version)
    shown = Shown(view.table.schema, integers_of(view.table.schema, question.integers), frozenset(names))
    return _Explanation(history, lookup, shown, question).answer()


def _view(repository: Repository, table: Table, as_of: str | None) -> tuple[View, str | None]:
    """Return the view to explain, and the name of its version; None for the present."""
    if as_of is None:
        return view_of(repository, table), None
    moment = _moment(as_of)
    if moment is None:
        return view_at(repository, table, as_of), as_of
    number = str(_current_at(repository, table, moment, as_of))
    return view_at(repository, table, number), number


def _current_at(repository: Repository, table: Table, moment: datetime, as_of: str) -> int:
    """Return the snapshot that was current at ``moment``. Raise ``NotFound`` if it may be one that has expired:
    bases and tags keep older ones.
    """
    commits = [
        commit for commit in repository.commits.every(table.id) if commit.snapshot_id <= (table.snapshot_id or 0)
    ]
    before = [commit for commit in commits if commit.committed_at <= moment]
    if not before:
        raise repository.snapshots.not_found(table.id, f"a snapshot of {as_of} or before", as_of)
    last = before[-1]
    after = next((commit for commit in commits if commit.snapshot_id > last.snapshot_id), None)
    if last.committed_at == moment or after is None or after.snapshot_id == last.snapshot_id + 1:
        return last.snapshot_id
    raise _expired(as_of, last, after)


def _expired(as_of: str, before: Commit, after: Commit) -> NotFound:
    first, last = before.snapshot_id + 1, after.snapshot_id - 1
    gone = f"snapshot {first} has" if first == last else f"snapshots {first} to {last} have"
    message = (
        f"what was shown at {as_of} is not known any more: {gone} expired; ask for asOf={before.snapshot_id}, which was"
        f" committed at {before.committed_at.isoformat()}, or for asOf={after.snapshot_id}, of"
        f" {after.committed_at.isoformat()}"
    )
    return not_found(Resource.SNAPSHOT, as_of, message)


def _moment(text: str) -> datetime | None:
    """Return the time in ``text``; None if it is a snapshot's number or a tag. Raise ``Invalid`` for a time without
    offset.
    """
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}", text):
        return None
    # A plus in a query that was not encoded is a space.
    spelled_out = re.sub(r" ([0-9]{2}:?[0-9]{2})$", r"+\1", text) if "T" in text.upper() else text
    try:
        moment = datetime.fromisoformat(spelled_out.upper())
    except ValueError as error:
        raise _bad(f"asOf={text!r} is no time: {error}") from error
    if moment.tzinfo is None:
        raise _bad(f"asOf={text!r} has no time zone")
    return moment  # with the offset of the text: in UTC it may be beyond the calendar


def _bad(message: str) -> Invalid:
    fix = "send a snapshot's number, a tag, or a time as 2026-03-01T12:00:00Z"
    return Invalid(message, violations=[Violation("/asOf", FaultCode.BAD_TIMESTAMP, message, fix)])


class _Explanation:
    """Makes the answer to one question."""

    def __init__(self, history: KeptHistory, lookup: FoundRow, shown: Shown, question: Question) -> None:
        self.history, self.lookup, self.shown, self.question = history, lookup, shown, question

    def answer(self) -> ExplainedRow:
        """Return the explanation from the oldest snapshot from which it is exact."""
        number, words = self._chosen()
        records = [event for event in self.history.after(number) if isinstance(event, Taken)]
        page = self._page(records)
        play = Play(self.history, self.history.base(number), self.shown, page)
        exact = play.body() == self.lookup.body
        left_out = page.first + page.dropped
        return ExplainedRow(
            self.shown.key(self.lookup.key),
            self.history.view.snapshot_id,
            self._row(),
            exact,
            None if exact else NOT_SUM,
            self._columns(play, records),
            self._start(number, words, play),
            page.steps,
            left_out,
            _named(records[left_out]) if left_out else None,
        )

    def _exact(self, number: int) -> bool:
        return Play(self.history, self.history.base(number), self.shown, None).body() == self.lookup.body

    def _chosen(self) -> tuple[int, str]:
        """Return the snapshot that the explanation starts from, and why it is this one.

        It is a later one if an older state was forgotten that the records do not show. If folding from one snapshot
        gives the row, so does folding from every later one.
        """
        numbers = self.history.bases
        first = numbers[0]
        words = self._older(first)
        if self._exact(first):
            return first, words
        low, high = 0, len(numbers) - 1  # not exact, exact
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._exact(numbers[middle]) else (middle, high)
        later = numbers[high]
        if (
            high == 0
            or not self._exact(later)
            or not any((event.snapshot or 0) > later for event in self.history.merged)
        ):
            return first, words
        return later, (
            f"what was merged up to snapshot {later} is one state: the records of before do not come to it, a"
            " compaction forgot something of the row"
        )

    def _older(self, number: int) -> str:
        if number == 0:
            return "nothing before the first batch"
        if self.history.read_after > self.history.since:
            return (
                f"records merged up to snapshot {number} are one state: an explanation reads the newest"
                f" {KEY_ROOM.records} of a key, and {KEY_ROOM.size_bytes // 2**20} MiB of them, at most"
            )
        return f"records merged up to snapshot {number} are one state: older ones are not kept"

    def _page(self, records: Sequence[Taken]) -> StepPage:
        """Return the records to show. Raise ``Invalid`` if ``before`` is not the place of one of them."""
        until = len(records)
        if self.question.before is not None:
            matching = [place for place, record in enumerate(records) if _named(record) == self.question.before]
            if not matching:
                raise Invalid(
                    f"no record of this row is kept for before={self.question.before!r}: repeat the request without it,"
                    " for older records may have expired since"
                )
            until = matching[0]
        return StepPage(max(until - self.question.steps, 0), until)

    def _row(self) -> Row | None:
        body, _ = spelled(self.lookup, self.question.integers)
        if self.lookup.body is None:
            return None
        row: Row = json.loads(body)
        return {name: row[name] for name in self.shown.encoders}

    def _columns(self, play: Play, records: Sequence[Taken]) -> list[ExplainedColumn]:
        row = self._row()
        if row is None:
            return []
        by_arrival = {record.record.arrival: record for record in records}
        sources = play.story.sources()
        explained = []
        for column in self.history.view.table.schema.value_columns:
            if column.name in row:
                source = sources.get(column.id, NOTHING)
                newest = source.arrivals[-MOST_SOURCES:]
                places = [_place(by_arrival[arrival]) for arrival in newest]
                left_out = len(source.arrivals) - len(newest)
                explained.append(ExplainedColumn(column.name, row[column.name], source.start, places, left_out))
        return explained

    def _start(self, number: int, words: str, play: Play) -> Start:
        commit = self.history.base(number).commit
        return Start(number or None, commit.committed_at if commit else None, words, play.start)


def _place(taken: Taken) -> RecordPlace:
    return RecordPlace(taken.batch.id, taken.batch.number, taken.position)


def _named(taken: Taken) -> str:
    """Return the value of ``before`` that requests the records before this one."""
    return f"{taken.batch.number}.{taken.position}"
