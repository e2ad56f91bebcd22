"""Publication: writes and removes the files for other engines, following the versions in the catalog
(docs/decisions/0031).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from cachetools import LRUCache

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.snapshots.published_versions import Next
from app.core.errors import KeyfoldError, NotFound
from app.core.plan.merging.published_runs import follows_merges
from app.core.table.history import Table, TaskKind, TaskTrigger
from app.core.table.published import Format, PublishedVersion, formats_of
from app.files.layout import Warehouse
from app.files.writable import reason_of
from app.services.publishing.formats import CHECKPOINT_EVERY, FILES, Kept
from app.services.shared.each_table import faults_kept
from app.services.shared.retries import time_left
from app.telemetry.entries import Counted, Upkeep

logger = logging.getLogger(__name__)
RETRY_SECONDS = 30.0
# Between full compactions of a table whose versions follow its merges, requested when a version could not follow.
COMPACTION_PAUSE = timedelta(minutes=1)
# Between versions of merges by default: each version lists again which rows its changes hide.
LEAST_INTERVAL = timedelta(seconds=10)
_NEVER = timedelta.max
_SCHEMAS_REMEMBERED = 10_000
_Place = tuple[str, Format]  # a table by its id, and a form that it is published in


class Publisher:
    """Writes the missing files of versions, for one worker. A failure to write the files of a table is logged and
    retried later; other tables do not wait.
    """

    def __init__(
        self, database: CatalogDatabase, warehouse: Warehouse, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._warehouse = warehouse
        self._clock = clock
        self._not_before: dict[_Place, float] = {}
        self._intervals: LRUCache[tuple[str, int, Format], timedelta] = LRUCache(_SCHEMAS_REMEMBERED)

    def publish(self) -> int:
        """Write the files of versions that the catalog lists as pending, each table's in order. Return how many.

        A table gets its next version only after the last one is written, so a table that is slow to write has fewer
        versions.
        """
        self.follow_merges()
        with self._database.reading() as repository:
            pending = repository.published.pending()
        of_place: dict[_Place, list[PublishedVersion]] = {}
        for version in pending:
            of_place.setdefault((version.table_id, version.format), []).append(version)
        written = 0
        for place, versions in of_place.items():
            if not self._waits(place):
                with self._trying(place):
                    for version in versions:
                        write_version(self._database, self._warehouse, version)
                        written += 1
        return written

    def follow_merges(self, now: datetime | None = None) -> None:
        """Add the next version of each table whose merges look up their changes, once the format's interval allows it.

        The version includes all merges since the newest one. If it cannot, request a full compaction.
        """
        with self._database.reading() as repository:
            behind = repository.published.behind()
            moment = now or repository.now()
        for newest, schema_id in behind:
            place = (newest.table_id, newest.format)
            if newest.written_at is not None and not self._waits(place):
                with self._trying(place):
                    self._follow(newest, schema_id, moment)

    def _waits(self, place: _Place) -> bool:
        """Return whether the last try has just failed."""
        return self._clock() < self._not_before.get(place, float("-inf"))

    @contextmanager
    def _trying(self, place: _Place) -> Iterator[None]:
        """Log a failure in the block, to be retried later. A dropped table is not a failure."""
        try:
            with suppress(NotFound):
                yield
        except Exception as error:  # of any kind: other tables do not wait for it
            self._database.metrics.count(Counted.UPKEEP_FAULTS, Upkeep(place[1].value))
            _log_failure(place, error)
            self._not_before[place] = self._clock() + RETRY_SECONDS
        else:
            self._not_before.pop(place, None)

    def _follow(self, newest: PublishedVersion, schema_id: int, now: datetime) -> None:
        if not _is_over(self._least_interval(newest, schema_id), newest.committed_at, now):
            return
        with self._database.reading() as repository:
            step = repository.published.next_of(newest)
        if step is Next.NOTHING:
            return
        with self._database.transaction() as repository:
            if step is Next.VERSION:
                repository.published.follow_merges(newest)
            elif _may_compact(repository, newest, now, COMPACTION_PAUSE):
                request_version(repository, newest.table_id, newest.format)

    def _least_interval(self, newest: PublishedVersion, schema_id: int) -> timedelta:
        """Return the least time between versions of merges; ``_NEVER`` if the table has no such versions under this
        schema.
        """
        place = (newest.table_id, schema_id, newest.format)
        if place not in self._intervals:
            with self._database.reading() as repository:
                schema = repository.tables.schema_at(newest.table_id, schema_id)
            wanted = schema.parsed[newest.format.interval] or LEAST_INTERVAL
            self._intervals[place] = wanted if follows_merges(schema, newest.format) else _NEVER
        return self._intervals[place]


def write_version(database: CatalogDatabase, warehouse: Warehouse, pending: PublishedVersion) -> None:
    """Write the files of a version that the catalog has, unless they exist. Raise ``DamagedFile``, ``OSError``,
    ``Conflict`` if another writer used their names, and ``NotFound`` if the table was dropped.
    """
    table_id, form, number = pending.table_id, pending.format, pending.version
    with database.reading() as repository:
        version = repository.published.get(table_id, form, number)
        if version is None or version.written_at is not None:
            return
        begins = repository.published.get(table_id, form, number - 1) is None
        write = FILES[form].write(repository, warehouse, version)
    counts = write()
    with database.transaction() as repository:
        repository.published.note_written(version, counts)
    if number and (begins or number % CHECKPOINT_EVERY == 0):
        keep_versions(database, warehouse, table_id, form)


def keep_versions(
    database: CatalogDatabase, warehouse: Warehouse, table_id: str, form: Format, now: datetime | None = None
) -> int:
    """Expire versions whose successor is older than the retention option. Return how many.

    Their files go first, then their rows in the catalog, which keeps the data files until then.
    """
    with database.reading() as repository:
        kept = _kept(repository, table_id, form, now or repository.now())
        if kept is None:
            return 0
        prepare = FILES[form].keep(repository, warehouse, kept)
    forget = prepare()
    with database.transaction() as repository:
        repository.tables.lock(table_id)  # without it one process could name a checkpoint that another removes
        known = repository.published.page(table_id, form)
        forget(repository, known)
        repository.published.forget_before(kept.first)
        return sum(version.version < kept.first.version for version in known)


def _kept(repository: Repository, table_id: str, form: Format, now: datetime) -> Kept | None:
    """Return the versions to keep; None if none is written yet."""
    written = [version for version in repository.published.page(table_id, form) if version.written_at is not None]
    if not written:
        return None
    retained = repository.tables.existing(table_id).schema.parsed[form.retained]
    followed = enumerate(after.committed_at for after in written[1:])
    first = next((place for place, at in followed if now - at < retained), -1)
    return Kept(written[first:])


def keep_published(database: CatalogDatabase, warehouse: Warehouse, tables: Sequence[Table]) -> int:
    """Run ``keep_versions`` for all ``tables`` in all formats; after a failure the next sweep retries."""
    forgotten = 0
    for table in tables:
        for form in Format:
            with faults_kept(database.metrics, Upkeep(form.value), table.full_name):
                forgotten += keep_versions(database, warehouse, table.id, form)
    return forgotten


def _log_failure(place: _Place, error: Exception) -> None:
    known = isinstance(error, (KeyfoldError, OSError))
    reason = reason_of(error) if isinstance(error, OSError) else str(error)
    table_id, form = place
    logger.warning("table %s cannot be published as %s; retried: %s", table_id, form, reason, exc_info=not known)


def follow_alter(repository: Repository, before: Table, table: Table) -> None:
    """Publish the current snapshot under the new columns, in the transaction of the ALTER. If its files cannot be read
    with them, and the table begins to publish, request a compaction.
    """
    snapshot, formats = repository.snapshots.current(table.id), formats_of(table.schema)
    if snapshot is None or not formats:
        return
    repository.published.follow(snapshot, table.schema_id)
    for form in formats:
        if not before.schema.parsed[form.publish] and lags(repository, table, form):
            request_version(repository, table.id, form)


def request_version(repository: Repository, table_id: str, form: Format) -> None:
    """Request a full compaction, which adds a version."""
    repository.tasks.request(table_id, TaskTrigger(form.value), TaskKind.COMPACTION, full=True)


def lags(repository: Repository, table: Table, form: Format) -> bool:
    """Return whether the newest version shows another snapshot than the current one, or other columns."""
    newest = repository.published.newest(table.id, form)
    if newest is None or newest.as_of != table.snapshot_id:
        return table.snapshot_id is not None
    return repository.published.shows_other_columns(newest, table.schema)


def waits_for_its_first(repository: Repository, table: Table) -> bool:
    """Return whether the table has no version yet in a format that it publishes: the compaction after its ALTER is
    pending, or has failed.
    """
    return any(repository.published.newest(table.id, form) is None for form in formats_of(table.schema))


def request_due_publications(database: CatalogDatabase, now: datetime | None = None) -> int:
    """Request a full compaction of the tables whose versions lag by the interval of their format; return how many."""
    with database.reading() as repository:
        moment = now or repository.now()
        due = [version for version, _ in repository.published.behind() if _is_due(repository, version, moment)]
    for version in due:
        with database.transaction() as repository:
            request_version(repository, version.table_id, version.format)
    return len({version.table_id for version in due})


def seconds_behind(repository: Repository) -> dict[Format, float]:
    """Return how many seconds the oldest unpublished batch of a published table has been waiting."""
    longest, now = dict.fromkeys(Format, 0.0), repository.now()
    for newest, accepted_at in repository.published.oldest_behind():
        table = repository.tables.find(newest.table_id)
        if table is not None and table.schema.parsed[newest.format.publish]:
            longest[newest.format] = max(longest[newest.format], (now - accepted_at).total_seconds())
    return longest


def _is_due(repository: Repository, newest: PublishedVersion, now: datetime) -> bool:
    table, form = repository.tables.find(newest.table_id), newest.format
    if table is None or not table.schema.parsed[form.publish]:
        return False
    interval = table.schema.parsed[form.interval]
    if interval is None or follows_merges(table.schema, form) or not lags(repository, table, form):
        return False
    return _may_compact(repository, newest, now, interval)


def _may_compact(repository: Repository, newest: PublishedVersion, now: datetime, pause: timedelta) -> bool:
    """Return whether a full compaction may be requested: none is pending, none has just failed, and the pauses since
    the last one and since the newest version are over.
    """
    if repository.tasks.compacts(newest.table_id):
        return False
    if time_left(repository.tasks.failed_compactions([newest.table_id]).get(newest.table_id), now):
        return False
    _, last = repository.stats.succeeded(newest.table_id, TaskKind.COMPACTION)
    tried_at = last.finished_at if last is not None and last.full else None
    return all(_is_over(pause, at, now) for at in (newest.committed_at, tried_at) if at is not None)


def _is_over(pause: timedelta, since: datetime, now: datetime) -> bool:
    """Return whether a pause is over; one that seems to begin in the future was stored before the
    clock was set back.
    """
    return since > now or now - since >= pause
