"""Scrubs: all files that the catalog names, read and compared with their digests, at once or slowly."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from app.catalog.database import CatalogDatabase
from app.core.errors import Cancelled, DamagedCatalog
from app.core.table.upkeep.damage import DamagedFile, NamedFile
from app.files.checksums import Checksums
from app.files.layout import Warehouse
from app.files.named_files import check_file
from app.services.shared.damage import data_files, named_files, noted
from app.services.shared.each_table import faults_kept
from app.storage.runs.runs import check_footer
from app.telemetry.entries import Counted, Upkeep

logger = logging.getLogger(__name__)
# The first round begins after this time, so that a service starts faster.
FIRST_SECONDS = 300.0
# Time between two rounds.
ROUND_SECONDS = 3600.0
Read = Callable[[int], None]
"""Hears of the bytes that were read; it may take its time, and raise ``Cancelled``."""


@dataclass(frozen=True)
class Finding:
    """A file that was read; ``damage`` is None if it is intact. Without ``file``: damage of the catalog."""

    file: NamedFile | None
    damage: DamagedFile | DamagedCatalog | None


def verify(database: CatalogDatabase, warehouse: Warehouse, read: Read | None = None) -> Iterator[Finding]:
    """Check the catalog, then read every file that it names. Tables and files are in random order, so that scrubs
    which are always interrupted still reach all of them. Damage is recorded, and cleared if the file is intact again;
    an intact file without a digest gets one (docs/decisions/0024).

    Files that nothing names any more are left out, and so are the files of tables whose catalog rows are damaged.
    """
    yield from _check_file_of_catalog(database)
    with database.reading() as repository:
        tables = [*repository.tables.every_name().items()]
    random.shuffle(tables)
    partly = set()
    for table_id, name in tables:
        with faults_kept(database.metrics, Upkeep.SCRUB, name):
            errors = _check_rows(database, table_id, name)
            if errors:
                partly.add(table_id)
            yield from errors
    for table_id, name in tables:
        if table_id not in partly:
            with faults_kept(database.metrics, Upkeep.SCRUB, name):
                yield from _read(database, warehouse, table_id, read)


def _check_file_of_catalog(database: CatalogDatabase) -> list[Finding]:
    """Return the faults that the database's own check finds."""
    try:
        return [Finding(None, DamagedCatalog(f"SQLite says: {fault}")) for fault in database.check_integrity()]
    except DamagedCatalog as damage:
        return [Finding(None, damage)]


def _check_rows(database: CatalogDatabase, table_id: str, name: str) -> list[Finding]:
    """Return the table's catalog rows that differ from what was stored."""
    try:
        with database.reading(afresh=True) as repository:
            return [Finding(None, damage) for damage in repository.integrity.faults(table_id)]
    except DamagedCatalog:
        return [Finding(None, DamagedCatalog(f"the rows of table {name} cannot be read"))]


def look_again(database: CatalogDatabase, warehouse: Warehouse) -> None:
    """Read the known damaged files again. Clear the damage of those that are intact again or no longer needed."""
    with database.reading() as repository:
        known = repository.damage.paths()
    if not known:
        return
    with database.transaction(wakes=False) as repository:
        repository.damage.forget_unneeded()
    for table_id, paths in known.items():
        with faults_kept(database.metrics, Upkeep.SCRUB, table_id):
            for _ in _read(database, warehouse, table_id, None, paths):
                continue


def _read(
    database: CatalogDatabase, warehouse: Warehouse, table_id: str, read: Read | None, only: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield the findings of a table's files, or of those with the given paths."""
    with database.reading() as repository:
        files = named_files(repository, table_id)
        stated = data_files(repository, table_id)
        known = repository.damage.paths().get(table_id, ())
    if only:
        files = [file for file in files if file.path in only]
    random.shuffle(files)
    for file in files:
        try:
            sums = check_file(warehouse, file, read)
            if file.path in stated:
                check_footer(warehouse, file, stated[file.path])
        except DamagedFile as damage:
            if noted(database, damage):
                yield Finding(file, damage)
            continue
        except DamagedCatalog as damage:
            yield Finding(file, damage)
            continue
        if file.path in known or file.digest is None:
            _keep(database, file, sums)
        yield Finding(file, None)


def _keep(database: CatalogDatabase, file: NamedFile, sums: Checksums) -> None:
    """Clear the damage of an intact file, and store its digest if it had none."""
    with database.transaction(wakes=False) as repository:
        repository.damage.clear(file.table_id, [file.path])
        if file.digest is None:
            repository.damage.sum_up(file, sums.digest, sums.block_digests)


def scrub(
    database: CatalogDatabase,
    warehouse: Warehouse,
    bytes_per_second: float,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Verify all files again and again, at a limited rate, until ``wait``, which sleeps for some seconds, returns that
    the service stops.
    """
    pace, pause, faults = Pace(bytes_per_second, wait, clock), FIRST_SECONDS, 0
    while not wait(pause):
        try:
            faults = _round(database, verify(database, warehouse, pace), faults)
        except Cancelled:
            return
        except Exception:
            logger.warning("the scrub failed; the next one begins later", exc_info=True)
        pause = ROUND_SECONDS


def _round(database: CatalogDatabase, findings: Iterable[Finding], before: int) -> int:
    """Log and count the faults of the catalog; return how many there are.

    Files that are damaged are noted by ``verify``. A round takes long: until its end the metric also counts the faults
    known ``before``.
    """
    faults = 0
    for finding in findings:
        if isinstance(finding.damage, DamagedCatalog):
            faults += 1
            logger.error("%s", finding.damage.message)
            database.metrics.set(Counted.CATALOG_FAULTS, max(faults, before))
    database.metrics.set(Counted.CATALOG_FAULTS, faults)
    return faults


class Pace:
    """Limits reading to an average rate in bytes per second; ``wait`` sleeps for some seconds and returns whether to
    stop.
    """

    def __init__(
        self,
        bytes_per_second: float,
        wait: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._wait = wait
        self._clock = clock
        self._due = clock()

    def __call__(self, count: int) -> None:
        """Sleep for as long as ``count`` bytes should take. Earlier idle time is not made up for.

        Raise ``Cancelled`` if the service stops.
        """
        now = self._clock()
        self._due = max(self._due, now) + count / self._bytes_per_second
        if self._wait(self._due - now):
            raise Cancelled("the scrub was stopped")
