"""Group commit: uploads to a table that arrive during a commit share the next transaction, and one sync of their
files.

Each keeps its batch, number and outcome. A single upload is committed at once, in the thread of its request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app.catalog.connections.writers import LOOK_SECONDS
from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.core.errors import Conflict, KeyfoldError, NotFound, NotStored, Unavailable
from app.core.table.history import Batch, NewBatch
from app.files.layout import Warehouse
from app.files.writable import check_present, writing
from app.storage.staging.keys_in_flight import KeysInFlight
from app.storage.staging.staging import staged_files, sync_staged, sync_staging

MOST_AT_ONCE = 256


@dataclass(eq=False)
class _Entry:
    """One batch that waits for its commit; ``turn`` is set once it is committed, or once it leads a group."""

    new: NewBatch
    turn: threading.Event = field(default_factory=threading.Event)
    outcome: Batch | BaseException | None = None


class GroupCommit:
    """Commits staged files in the catalog, those of one table together; one per process. ``keys`` are the
    Idempotency-Keys in flight.

    ``keys`` are those of requests under way.
    """

    def __init__(self, database: CatalogDatabase, warehouse: Warehouse, keys: KeysInFlight | None = None) -> None:
        self.keys = keys or KeysInFlight()
        self._database = database
        self._warehouse = warehouse
        self._lock = threading.Lock()
        # By table: those who wait for the one that leads, which is not among them. No table without a leader.
        self._waiting: dict[str, list[_Entry]] = {}

    def enter(self, table_id: str, new: NewBatch) -> Batch:
        """Return the batch of ``new``, which is durable then.

        Raise as ``Batches.add``, ``Unavailable`` if the staging file was garbage-collected, ``NotStored`` if it cannot
        be made durable, or if other requests already wait for a catalog that does not answer.
        """
        entry = _Entry(new)
        with self._lock:
            leads = table_id not in self._waiting
            if leads:
                self._waiting[table_id] = []
            else:
                self._waiting[table_id].append(entry)
        if not leads:
            self._wait(table_id, entry)
        if entry.outcome is None:
            self._lead(table_id, entry)
        if isinstance(entry.outcome, Batch):
            return entry.outcome
        raise entry.outcome or Unavailable("the batch was not committed; retry")

    def _wait(self, table_id: str, entry: _Entry) -> None:
        """Wait until ``entry`` is committed or leads. Raise ``NotStored`` on a timeout; it is in no group then."""
        with self._database.writers.waiting() as check:
            while not entry.turn.wait(LOOK_SECONDS):
                try:
                    check()
                except NotStored:
                    if self._left(table_id, entry):
                        raise

    def _left(self, table_id: str, entry: _Entry) -> bool:
        """Return whether ``entry`` was still waiting for a group, and remove it from the queue."""
        with self._lock:
            waiting = self._waiting.get(table_id, [])
            waits = entry in waiting
            if waits:
                waiting.remove(entry)
            return waits

    def _lead(self, table_id: str, entry: _Entry) -> None:
        """Commit ``entry`` and all waiting entries, then let the first entry that arrived since lead."""
        with self._lock:
            group = [entry, *self._waiting[table_id][: MOST_AT_ONCE - 1]]
            del self._waiting[table_id][: len(group) - 1]
        try:
            self._enter_all(table_id, group)
        finally:
            with self._lock:
                waiting = self._waiting[table_id]
                following = waiting.pop(0) if waiting else None
                if following is None:
                    del self._waiting[table_id]
            for other in (*group[1:], *([following] if following else [])):
                other.turn.set()

    def _enter_all(self, table_id: str, group: Sequence[_Entry]) -> None:
        try:
            outcomes = self._entered(table_id, group)
        except NotStored as error:
            for entry in group:  # disk and catalog fail for all of them
                entry.outcome = NotStored(error.message, violations=error.violations)
            return
        except BaseException as error:
            if len(group) == 1:
                group[0].outcome = error
                return
            for entry in group:  # each is retried alone, so that one failure does not fail the others
                self._enter_all(table_id, [entry])
            return
        for entry, outcome in zip(group, outcomes, strict=True):
            entry.outcome = outcome

    def enter_together(
        self,
        news: Mapping[str, NewBatch],
        alter: Callable[[Repository], None] | None = None,
        settle: Callable[[Repository], None] | None = None,
    ) -> list[Batch]:
        """Commit ``news``, one for each table, and return their batches: all or none. In the same transaction
        ``alter`` changes the tables first, and ``settle`` runs for new batches.

        Raise as ``enter``, what ``alter`` and ``settle`` raise, and ``Conflict`` (COMMIT_CONFLICT) if only some of
        them were committed before.
        """
        with writing():
            sync_staged(self._warehouse, {table_id: new.file for table_id, new in news.items()})
        with self._database.transaction() as repository:
            if alter is not None:
                repository.tables.lock_all(news)  # every process locks tables in this order
                alter(repository)
            tables = repository.tables.lock_all(news)
            batches = []
            for table_id, new in news.items():
                if table_id not in tables:
                    raise Conflict("a table was dropped while its records were read; post the request again")
                if not self._with_files(table_id, [new]):
                    raise swept()
                [outcome] = repository.batches.add(tables[table_id], [new])
                if not isinstance(outcome, Batch):
                    raise outcome
                batches.append(outcome)
            are_new = {batch.id == new.id for batch, new in zip(batches, news.values(), strict=True)}
            if len(are_new) > 1:
                raise Conflict("a part of this request was entered by another request; retry")
            if settle is not None and True in are_new:
                settle(repository)
        return batches

    def _entered(self, table_id: str, group: Sequence[_Entry]) -> list[Batch | KeyfoldError]:
        with writing():
            sync_staging(self._warehouse, table_id, [entry.new.file for entry in group])
        news = [entry.new for entry in group]
        with self._database.transaction() as repository:
            try:
                # A sweep holds the table's lock, too: what is there now stays, for a batch names it.
                table = repository.tables.lock(table_id)
            except NotFound as error:
                return [error] * len(news)
            present = self._with_files(table_id, news)
            outcomes = dict(zip((new.id for new in present), repository.batches.add(table, present), strict=True))
        return [outcomes.get(new.id) or swept() for new in news]

    def _with_files(self, table_id: str, news: Sequence[NewBatch]) -> list[NewBatch]:
        """Return the entries whose staging files exist; their table is locked."""
        if self._warehouse.marked:  # else the files may be in the folder in its place
            check_present(self._warehouse)
        with writing():
            stored = staged_files(self._warehouse, table_id, [new.file for new in news])
        return [new for new in news if new.file in stored]


def swept() -> Unavailable:
    """Return the error: the staging file was garbage-collected before its batch was committed."""
    return Unavailable("the batch took so long to be stored that its file was swept; nothing was accepted; retry")
