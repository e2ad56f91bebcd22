"""Scrubs: everything that the catalog names, read and compared, at once or slowly (design §5)."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from app.catalog.database import CatalogDatabase
from app.core.errors import Cancelled
from app.core.table.damage import DamagedFile, NamedFile
from app.services.damage import named_files, noted
from app.services.sweeps import every_table
from app.storage.checksums import Checksums
from app.storage.layout import Warehouse
from app.storage.named_files import check_file

logger = logging.getLogger(__name__)
FIRST_SECONDS = 300.0  # before the first round: a service that starts has better things to do
ROUND_SECONDS = 3600.0  # between two rounds
Read = Callable[[int], None]
"""Hears of the bytes that were read; it may take its time, and raise ``Cancelled``."""


@dataclass(frozen=True)
class Finding:
    """A file that was read; ``damage`` is None where it is what was written."""

    file: NamedFile
    damage: DamagedFile | None


def verify(database: CatalogDatabase, warehouse: Warehouse, read: Read | None = None) -> Iterator[Finding]:
    """Read every file that the catalog names, the tables and the files of each in an order of chance, so that those who
    are stopped half-way again and again come to all. What is damaged is noted, what is well again is forgotten; what is
    well and had no digest has one afterwards (docs/decisions/0024).

    A file that nothing names any more by the time that it is read is left out.
    """
    tables = every_table(database)
    random.shuffle(tables)
    for table in tables:
        yield from _read(database, warehouse, table.id, read)


def look_again(database: CatalogDatabase, warehouse: Warehouse) -> None:
    """Read what is known to be damaged, and forget what is well again, or needed by nobody."""
    with database.reading() as repository:
        known = repository.damage.paths()
    if not known:
        return
    with database.transaction(wakes=False) as repository:
        repository.damage.forget_unneeded()
    for table_id, paths in known.items():
        for _ in _read(database, warehouse, table_id, None, paths):
            continue


def _read(
    database: CatalogDatabase, warehouse: Warehouse, table_id: str, read: Read | None, only: Collection[str] = ()
) -> Iterator[Finding]:
    """What is found of the files of a table, or of those whose paths are given."""
    with database.reading() as repository:
        files = named_files(repository, table_id)
        known = repository.damage.paths().get(table_id, ())
    if only:
        files = [file for file in files if file.path in only]
    random.shuffle(files)
    for file in files:
        try:
            found = check_file(warehouse, file, read)
        except DamagedFile as damage:
            if noted(database, damage):
                yield Finding(file, damage)
            continue
        if file.path in known or file.digest is None:
            _keep(database, file, found)
        yield Finding(file, None)


def _keep(database: CatalogDatabase, file: NamedFile, found: Checksums) -> None:
    """Forget that a file was damaged, and keep what its bytes come to if nobody has computed it before."""
    with database.transaction(wakes=False) as repository:
        repository.damage.clear(file.table_id, [file.path])
        if file.digest is None:
            repository.damage.sum_up(file, found.digest, found.block_digests)


def scrub(
    database: CatalogDatabase,
    warehouse: Warehouse,
    bytes_per_second: float,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Read everything that the catalog names again and again, not faster than that, until ``wait``, which rests for so
    many seconds, says to stop.
    """
    pace, pause = Pace(bytes_per_second, wait, clock), FIRST_SECONDS
    while not wait(pause):
        try:
            for _ in verify(database, warehouse, pace):  # notes what it finds
                continue
        except Cancelled:
            return
        except Exception:
            logger.warning("the scrub failed and begins anew later", exc_info=True)
        pause = ROUND_SECONDS


class Pace:
    """Keeps reading at so many bytes a second on the average; ``wait`` rests for so many seconds and says whether to
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
        """Rest for as long as ``count`` bytes take. What was not read in the past is not made up for.

        Raises ``Cancelled`` when it is time to stop.
        """
        now = self._clock()
        self._due = max(self._due, now) + count / self._bytes_per_second
        if self._wait(self._due - now):
            raise Cancelled("the scrub was stopped")
