"""Delta publication: the log is written after the versions that the catalog has decided, and kept as long as they are
(docs/decisions/0031).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from app.catalog.database import CatalogDatabase
from app.catalog.repository import Repository
from app.catalog.snapshots.delta_versions import runs_of
from app.core.errors import KeyfoldError, NotFound
from app.core.table.delta import DeltaVersion, Published
from app.core.table.history import Table, TaskKind, TaskTrigger
from app.files.layout import Warehouse
from app.files.writable import reason_of
from app.services.shared.each_table import faults_kept
from app.services.shared.retries import still_waits
from app.storage.delta.checkpoints import forget_versions, name_checkpoint, write_checkpoint
from app.storage.delta.log import write_version
from app.telemetry.entries import Counted, Upkeep

logger = logging.getLogger(__name__)
CHECKPOINT_EVERY = 10  # versions: so many small files are read by who opens the table, beside one checkpoint
RETRY_SECONDS = 30.0


class Publisher:
    """Writes what the logs lack, for one worker. A table whose log cannot be written is told and tried again later; the
    others go on.
    """

    def __init__(
        self, database: CatalogDatabase, warehouse: Warehouse, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._warehouse = warehouse
        self._clock = clock
        self._not_before: dict[str, float] = {}

    def publish(self) -> int:
        """Write the versions that the catalog has and the logs have not, each table's in order; returns how many."""
        with self._database.reading() as repository:
            pending = repository.delta.pending()
        of_table: dict[str, list[int]] = {}
        for table_id, number in pending:
            of_table.setdefault(table_id, []).append(number)
        return sum(self._publish_table(table_id, numbers) for table_id, numbers in of_table.items())

    def _publish_table(self, table_id: str, numbers: Sequence[int]) -> int:
        if self._clock() < self._not_before.get(table_id, float("-inf")):
            return 0
        written = 0
        try:
            for number in numbers:
                _write(self._database, self._warehouse, table_id, number)
                written += 1
        except NotFound:
            pass  # dropped meanwhile
        except Exception as error:  # whatever it is, other tables do not wait for it
            self._database.metrics.count(Counted.UPKEEP_FAULTS, Upkeep.DELTA)
            _tell(table_id, error)
            self._not_before[table_id] = self._clock() + RETRY_SECONDS
            return written
        self._not_before.pop(table_id, None)
        return written


def _write(database: CatalogDatabase, warehouse: Warehouse, table_id: str, number: int) -> None:
    with database.reading() as repository:
        version = repository.delta.get(table_id, number)
        if version is None or version.written_at is not None:
            return
        before = repository.delta.get(table_id, number - 1)
        published = _published(repository, version)
        earlier = None if before is None else _published(repository, before)
    write_version(warehouse, published, earlier)
    with database.transaction() as repository:
        repository.delta.note_written(version)
    if number and (earlier is None or number % CHECKPOINT_EVERY == 0):
        keep_log(database, warehouse, table_id)


def _published(repository: Repository, version: DeltaVersion) -> Published:
    """Return what a version shows. Raise ``NotFound`` when the table is gone."""
    runs = runs_of(version, repository.snapshots.get(version.table_id, version.snapshot_id))
    written = {run.schema_id for run in runs}
    schemas = {one: repository.tables.schema_at(version.table_id, one) for one in {*written, version.schema_id}}
    return Published(version, schemas[version.schema_id], runs, schemas)


@dataclass(frozen=True)
class _Kept:
    """What a log keeps: the versions from ``first`` on, and those of them that have a checkpoint."""

    first: DeltaVersion
    checkpoints: Sequence[Published]


def keep_log(database: CatalogDatabase, warehouse: Warehouse, table_id: str, now: datetime | None = None) -> int:
    """Checkpoint the log, and forget the versions that were followed longer than ``delta.log-retained`` ago: in the log
    first, then in the catalog, which keeps their files until then. Returns how many versions were forgotten.
    """
    with database.reading() as repository:
        kept = _kept(repository, table_id, now or repository.now())
    if kept is None:
        return 0
    sizes = [write_checkpoint(warehouse, version) for version in kept.checkpoints]
    with database.transaction() as repository:
        repository.tables.lock(table_id)  # of two that name a checkpoint one would name what the other removes
        known = [version.version for version in repository.delta.page(table_id)]
        if kept.checkpoints and kept.checkpoints[-1].version.version in known:
            name_checkpoint(warehouse, table_id, kept.checkpoints[-1].version.version, sizes[-1])
        forget_versions(warehouse, table_id, kept.first.version)
        repository.delta.forget_before(table_id, kept.first.version)
        return sum(number < kept.first.version for number in known)


def _kept(repository: Repository, table_id: str, now: datetime) -> _Kept | None:
    """Return None where nothing is written yet. The log begins with a checkpoint, unless it begins with version 0."""
    written = [version for version in repository.delta.page(table_id) if version.written_at is not None]
    if not written:
        return None
    retained = repository.tables.existing(table_id).schema.parsed["delta.log-retained"]
    first = next((one for one, after in pairwise(written) if now - after.committed_at < retained), written[-1])
    newest = written[-1].version
    numbers = {first.version, max(newest - newest % CHECKPOINT_EVERY, first.version)} - {0}
    return _Kept(first, [_published(repository, version) for version in written if version.version in numbers])


def keep_logs(database: CatalogDatabase, warehouse: Warehouse, tables: Sequence[Table]) -> int:
    """As ``keep_log``, of all ``tables`` that have a log; what cannot be done now is done by a later sweep."""
    forgotten = 0
    for table in tables:
        with faults_kept(database.metrics, Upkeep.DELTA, table.full_name):
            forgotten += keep_log(database, warehouse, table.id)
    return forgotten


def _tell(table_id: str, error: Exception) -> None:
    known = isinstance(error, (KeyfoldError, OSError))
    reason = reason_of(error) if isinstance(error, OSError) else str(error)
    logger.warning("the Delta log of table %s waits: %s", table_id, reason, exc_info=not known)


def follow_alter(repository: Repository, before: Table, table: Table) -> None:
    """What an ALTER publishes, in its transaction: the current snapshot under the new columns, where that can be read
    so. A table that begins to publish is compacted for it otherwise.
    """
    snapshot = repository.snapshots.current(table.id)
    if snapshot is None or not table.schema.parsed["delta.publish"]:
        return
    followed = repository.delta.follow(snapshot, table.schema_id)
    begins = not before.schema.parsed["delta.publish"]
    if followed is None and begins and lags(repository, table):
        repository.tasks.request(table.id, TaskTrigger.DELTA, TaskKind.COMPACTION, full=True)


def lags(repository: Repository, table: Table) -> bool:
    """Return whether the newest version shows another snapshot than the current one, or other columns."""
    newest = repository.delta.newest(table.id)
    if newest is None or newest.as_of != table.snapshot_id:
        return table.snapshot_id is not None
    return repository.delta.shows_other_columns(newest, table.schema)


def waits_for_its_first(repository: Repository, table: Table) -> bool:
    """Return whether the table publishes and no version was ever decided: the compaction that its ALTER asked for is to
    come, or has failed.
    """
    return bool(table.schema.parsed["delta.publish"]) and repository.delta.newest(table.id) is None


def request_due_publications(database: CatalogDatabase, now: datetime | None = None) -> int:
    """Ask for a full compaction of the tables whose log lags by ``delta.publish.interval``; returns how many."""
    with database.reading() as repository:
        behind = repository.delta.behind()
        moment = now or repository.now()
        due = [table_id for table_id, at in behind if _is_due(repository, table_id, at, moment)]
    for table_id in due:
        with database.transaction() as repository:
            repository.tasks.request(table_id, TaskTrigger.DELTA, TaskKind.COMPACTION, full=True)
    return len(due)


def _is_due(repository: Repository, table_id: str, published_at: datetime, now: datetime) -> bool:
    table = repository.tables.find(table_id)
    if table is None or not table.schema.parsed["delta.publish"]:
        return False
    interval = table.schema.parsed["delta.publish.interval"]
    if interval is None or not lags(repository, table) or repository.tasks.compacts(table_id):
        return False
    if still_waits(repository.tasks.failed_compactions(table_id).get(table_id), now):
        return False
    _, last = repository.stats.succeeded(table_id, TaskKind.COMPACTION)
    tried_at = last.finished_at if last is not None and last.full else None
    return bool(now - max(published_at, tried_at or published_at) >= interval)
