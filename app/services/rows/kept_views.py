"""Cached views: a process keeps the views of its tables until another commit changes them (docs/decisions/0018)."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from app.catalog.connections.notifications import EVERYTHING, Notifications
from app.catalog.database import CatalogDatabase
from app.core.errors import DamagedCatalog, KeyfoldError, NotFound
from app.core.table.history import Batch, Table
from app.core.table.options.entries import Consistency
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse
from app.services.rows.views import View, view_of
from app.services.shared.background import Repeated
from app.services.shared.damage import read_again
from app.storage.staging.staged_index import StagedIndex, load_bounded_batch

logger = logging.getLogger(__name__)
MOST_TABLES = 10_000
# All kept views together have at most this many columns; a single view may have more.
MOST_COLUMNS = 200_000
MOST_BYTES = 256 * 2**20
# A damaged staged batch is read again after this time.
FAILED_SECONDS = 1.0
BY_POLLING = (
    "the catalog is behind a connection pooler: commits of other machines are looked for each second, not notified"
)
LISTEN_SECONDS = 1.0  # also how often the catalog is polled for changes that set no mark
Name = tuple[str, str]  # of the database and of the table


@dataclass(frozen=True)
class _Kept:
    """A view and the mark of its table from before it was read; ``fed``: its staged batches are in the index."""

    view: View
    merged: View
    mark: int
    fed: bool
    default: Consistency

    def seen(self, wanted: Consistency | None) -> View:
        """Return the view for a lookup with the consistency ``wanted``."""
        return self.merged if (wanted or self.default) is Consistency.MERGED else self.view

    def serves(self, wanted: Consistency | None) -> bool:
        """Return whether the view answers lookups with the consistency ``wanted``: all but MERGED
        need staged records.
        """
        return self.fed or (wanted or self.default) is Consistency.MERGED


class Views:
    """The cached views of this process. A view is current as long as its table's mark has not changed since before it
    was read. Otherwise it is read again, by one thread at a time for each table.

    ``most_bytes`` bounds the staged records that all views hold; beyond it lookups read the files of the batches.
    ``shared``: every process that writes to the catalog sets the marks that this one reads. If not, a lookup of the
    latest rows reads the number of the last batch from the catalog.
    """

    def __init__(
        self,
        database: CatalogDatabase,
        warehouse: Warehouse,
        most_bytes: int = MOST_BYTES,
        default: Consistency = Consistency.LATEST,
        *,
        shared: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._warehouse = warehouse
        self._most_bytes = most_bytes
        self._default = default
        self._shared = shared
        self._clock = clock
        self._kept: OrderedDict[Name, _Kept] = OrderedDict()
        self._failed: dict[Name, tuple[DamagedFile, float, int]] = {}  # when, under which mark of the table
        self._used: set[Name] = set()
        self._turns: defaultdict[Name, threading.Lock] = defaultdict(threading.Lock)
        self._closed = threading.Event()
        # Finds the changes of a process that was killed between its commit and its mark.
        self._comparing = Repeated("views-poll", self.compare, lambda: LISTEN_SECONDS)
        self._listening = threading.Thread(target=self._listen, name="views-listen", daemon=True)

    def start(self) -> None:
        """Begin to watch for commits without a mark."""
        self._comparing.start()
        if not self._database.embedded:
            self._listening.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._comparing.close(2 * LISTEN_SECONDS)
        if self._listening.is_alive():
            self._listening.join(2 * LISTEN_SECONDS)

    def recall(self, name: Name, wanted: Consistency | None) -> View | None:
        """Return the table's view if it is known to be current; it takes no query, no file and no lock. None in
        ``wanted`` means the default of the table, or else of the service.
        """
        entry = self._fresh(name, wanted)
        if entry is None:
            return None
        self._used.add(name)
        seen = entry.seen(wanted)
        return None if seen is entry.view and not self._shared else seen

    def _fresh(self, name: Name, wanted: Consistency | None) -> _Kept | None:
        """Return the cached entry for such lookups, if no mark shows a commit since."""
        entry = self._kept.get(name)
        fresh = (
            entry is not None and entry.mark == self._database.marks.mark(entry.view.table.id) and entry.serves(wanted)
        )
        return entry if fresh else None

    def take_used(self) -> Collection[Name]:
        """Return the names of the tables that were looked up since the last call."""
        used, self._used = self._used, set()
        return used

    def known_table(self, name: Name) -> Table | None:
        """Return the table if it is known to be current; it takes no query."""
        entry = self._fresh(name, Consistency.MERGED) if self._shared else None
        return None if entry is None else entry.view.table

    def current_table(self, name: Name) -> Table:
        """Return the table from the catalog, and cache its view. Raise ``NotFound``."""
        if self._shared:
            with suppress(DamagedCatalog), self._turns[name]:  # of its snapshot: the table itself may be intact
                return self.known_table(name) or self._read(name, Consistency.MERGED).view.table
        with self._database.reading() as repository:
            return repository.tables.get(*name)

    def known(self, name: Name) -> View | None:
        """Return the table's view, current or not; None if there is none."""
        entry = self._kept.get(name)
        return None if entry is None else entry.view

    def current(self, name: Name, wanted: Consistency | None) -> View:
        """Return the table's view now. Raise ``NotFound``, ``DamagedFile`` for a staged batch, ``Unavailable`` if
        the catalog does not answer.
        """
        known = self.recall(name, wanted) or self._unchanged(name, wanted)
        if known is not None:
            return known
        with self._turns[name]:
            known = self.recall(name, wanted) or self._read(name, wanted).seen(wanted)
        self._used.add(name)
        return known

    def _unchanged(self, name: Name, wanted: Consistency | None) -> View | None:
        """Return the cached view if the catalog has no later batch."""
        entry = self._fresh(name, wanted)
        if entry is None:
            return None
        with self._database.reading() as repository:
            last = repository.batches.last_number_of(*name)
        return entry.seen(wanted) if last == (entry.view.table.id, entry.view.last_batch) else None

    def _read(self, name: Name, wanted: Consistency | None) -> _Kept:
        before = self._kept.get(name)
        self._check_failed(name, wanted)
        try:
            entry = read_again(lambda: self._fed(name, before, wanted))
        except NotFound:
            self._forget(name)
            raise
        except DamagedFile as error:
            self._failed[name] = error, self._clock(), self._database.marks.mark(error.file.table_id)
            raise
        self._kept[name] = entry
        self._kept.move_to_end(name)
        while len(self._kept) > MOST_TABLES or (len(self._kept) > 1 and self._columns() > MOST_COLUMNS):
            self._forget(next(iter(self._kept)))
        return entry

    def _check_failed(self, name: Name, wanted: Consistency | None) -> None:
        """Raise the recent failure of reading the staged batches again: reading them for each lookup would keep all
        others waiting.
        """
        failed = self._failed.get(name)
        if failed is None or wanted is Consistency.MERGED:
            return
        error, at, mark = failed
        if self._clock() - at < FAILED_SECONDS and mark == self._database.marks.mark(error.file.table_id):
            raise DamagedFile(error.file, error.reason, error.found)
        self._failed.pop(name, None)

    def _columns(self) -> int:
        return sum(len(entry.view.table.schema.columns) for entry in list(self._kept.values()))

    def _forget(self, name: Name) -> None:
        self._kept.pop(name, None)
        self._failed.pop(name, None)
        self._turns.pop(name, None)

    def _fed(self, name: Name, before: _Kept | None, wanted: Consistency | None) -> _Kept:
        view, mark = self._seen(name, before)
        if before is not None and before.view.table.id == view.table.id:
            view = replace(view, index=_index_after(before.view, view))
        default = view.table.schema.parsed["lookup.consistency"] or self._default
        entry = _Kept(view, view.merged, mark, fed=False, default=default)
        return entry if entry.serves(wanted) else replace(entry, view=self._indexed(view), fed=True)

    def _seen(self, name: Name, before: _Kept | None) -> tuple[View, int]:
        """Return the table from the catalog, and its mark from before that."""
        marks = self._database.marks
        mark = marks.mark(before.view.table.id) if before else 0
        with self._database.reading() as repository:
            table = repository.tables.get(*name)
            if before is not None and table.id == before.view.table.id:
                return view_of(repository, table, before.view), mark
        mark = marks.mark(table.id)
        with self._database.reading() as repository:
            table = repository.tables.get(*name)
            return view_of(repository, table), mark

    def _indexed(self, view: View) -> View:
        """Return the view with its batches in the index, as far as the memory bound allows."""
        index, free = view.index, self._most_bytes - self._others_bytes(view.table.id) - view.index.size_bytes
        unread: list[Batch] = []
        for batch in view.staged:
            if batch.number in index.batches:
                continue
            if unread or free <= 0 or not batch.records:
                unread.append(batch)
                continue
            loaded = load_bounded_batch(self._warehouse, batch, view.schemas[batch.schema_id], free)
            if loaded is None:
                unread.append(batch)
            else:
                index, free = index.extended(loaded), free - loaded.size_bytes
        return replace(view, unread=tuple(batch for batch in unread if batch.records), index=index)

    def _others_bytes(self, table_id: str) -> int:
        return sum(entry.view.index.size_bytes for entry in [*self._kept.values()] if entry.view.table.id != table_id)

    def compare(self) -> None:
        """Set the marks of the tables whose views differ from the catalog."""
        entries = {entry.view.table.id: entry for entry in list(self._kept.values())}
        if not entries:
            return
        with self._database.reading() as repository:
            heads = repository.commits.states(entries)
        self._database.marks.change(
            [table_id for table_id, entry in entries.items() if heads.get(table_id) != _state(entry.view)]
        )

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                notifications = self._database.notifications()
                if notifications is None:
                    logger.info(BY_POLLING)
                    return
                self._hear(notifications)
            except KeyfoldError as error:
                logger.warning("no notifications of commits; the connection is made again: %s", error)
                self._closed.wait(LISTEN_SECONDS)

    def _hear(self, notifications: Notifications) -> None:
        try:
            self._database.marks.change_all()  # commits before it were not notified
            while not self._closed.is_set():
                for table_id in notifications.within(LISTEN_SECONDS):
                    if table_id == EVERYTHING:
                        self._database.marks.change_all()
                    else:
                        self._database.marks.change([table_id])
        finally:
            notifications.close()


def _index_after(before: View, view: View) -> StagedIndex:
    """Return the staged records that are in memory already; none if keys were forgotten, for files are others."""
    files = {batch.number: batch.file for batch in before.staged} if before.snapshot_id != view.snapshot_id else {}
    if any(files.get(batch.number, batch.file) != batch.file for batch in view.staged):
        return StagedIndex()
    return before.index.without(set(before.index.batches) - {batch.number for batch in view.staged})


def _state(view: View) -> tuple[str, str, int, int | None, int, int]:
    """Return the values of ``Commits.states`` for the view's table."""
    table = view.table
    return table.database, table.name, table.schema_id, table.snapshot_id, view.last_batch, len(view.staged)
