"""Whether a batch may be staged now: the warehouse is available, its disk has room, and the staging areas are within
their bounds (docs/decisions/0028).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from app.catalog.database import CatalogDatabase
from app.core.errors import FaultCode, KeyfoldError, NotStored, StagingFull, Violation
from app.core.table.history import Table
from app.files.layout import Warehouse
from app.files.writable import check_present, free_bytes, free_bytes_at
from app.services.shared.background import Repeated
from app.telemetry.entries import Bound, Counted

logger = logging.getLogger(__name__)
# The staging areas are read again after this time.
FRESH_SECONDS: Final = 1.0
_WAIT: Final = "retry later: merges make room; if they do not, GET …/merges shows why"


@dataclass(frozen=True)
class StagingBounds:
    """How much may be staged, of one table and of all; how long a batch may wait for its merge beyond its table's
    ``merge.max-staleness``; and how many bytes of the disks must be free.
    """

    table_bytes: int
    table_records: int
    late: timedelta
    all_bytes: int
    all_records: int
    free_bytes: int


@dataclass
class _Area:
    """The staged bytes and records of a table, and the time of the oldest (by the catalog's clock)."""

    records: int = 0
    size: int = 0
    oldest: datetime | None = None


@dataclass
class _Known:
    """All staging areas as read at ``read_at`` (seconds of this process's clock), when the catalog's clock said
    ``now``, plus what this process has accepted since.
    """

    read_at: float
    now: datetime | None = None
    areas: dict[str, _Area] = field(default_factory=lambda: defaultdict(_Area))
    records: int = 0
    size: int = 0

    def add(self, table_id: str, records: int, size: int, oldest: datetime | None = None) -> None:
        """Add a batch of the table to its staging area."""
        area = self.areas[table_id]
        area.records, area.size = area.records + records, area.size + size
        area.oldest = area.oldest or oldest or self.now
        self.records, self.size = self.records + records, self.size + size


class Admission(Repeated):
    """Refuses batches while the staging areas are full; one per process.

    A batch costs no query: the staging areas are read about once a second while batches come, and the batches that
    this process accepts are added. So the bounds ignore at most one second of what other processes accept. Before a
    batch is refused, the areas are read again. Below the bounds a batch of any size is admitted; bodies that are being
    read count as staged.
    """

    def __init__(
        self,
        database: CatalogDatabase,
        warehouse: Warehouse,
        folder: Path,
        bounds: StagingBounds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("admission", self.read, lambda: FRESH_SECONDS, on_demand=True)
        self._database = database
        self._warehouse = warehouse
        self._folder = folder
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of the thread that reads the catalog
        self._known = _Known(float("-inf"))
        self._accepted: list[tuple[str, int, int]] = []  # since the last reading of the catalog began
        self._pending: dict[str, int] = defaultdict(int)  # bytes of bodies, by table

    @contextmanager
    def admitted(self, table: Table, size: int) -> Iterator[None]:
        """Admit the body, in which a batch of ``size`` bytes is read and stored.

        Raise ``StagingFull`` at a bound of the staging areas; ``NotStored`` if the warehouse is missing, a disk has
        too little room, or other requests already wait for a catalog that does not answer.
        """
        self._database.writers.check()
        self._check_disks(size)
        self._check_areas(table)
        self.ask()
        with self._lock:
            self._pending[table.id] += size
        try:
            yield
        finally:
            with self._lock:
                self._pending[table.id] -= size
                if not self._pending[table.id]:
                    del self._pending[table.id]

    def accepted(self, table_id: str, records: int, size: int) -> None:
        """Count a batch that was accepted."""
        with self._lock:
            self._accepted.append((table_id, records, size))
            self._known.add(table_id, records, size)

    def _check_disks(self, size: int) -> None:
        with self._refusing(Bound.WAREHOUSE):
            check_present(self._warehouse)
        rooms = {"the warehouse": free_bytes(self._warehouse), "the data folder": free_bytes_at(str(self._folder))}
        with self._lock:
            needed = self._bounds.free_bytes + size + sum(self._pending.values())
        for where, room in rooms.items():
            if room is not None and self._bounds.free_bytes and room < needed:
                message = (
                    f"the disk of {where} has {room} bytes of room, and this batch with those in flight would leave"
                    f" less than {self._bounds.free_bytes} (KEYFOLD_LEAST_FREE_MIB); nothing was stored"
                )
                fix = "free room on the disk, then retry"
                with self._refusing(Bound.ROOM):
                    raise NotStored(message, violations=[Violation("", FaultCode.NO_ROOM, message, fix)])

    @contextmanager
    def _refusing(self, bound: Bound) -> Iterator[None]:
        try:
            yield
        except KeyfoldError:
            self._database.metrics.count(Counted.REFUSED_BATCHES, bound)
            raise

    def _check_areas(self, table: Table) -> None:
        refusal = self._refusal(table)
        if self._known.now is None or (refusal is not None and self._clock() - self._known.read_at > FRESH_SECONDS):
            self.read()
            refusal = self._refusal(table)
        if refusal is not None:
            with self._refusing(refusal[0]):
                raise refusal[1]

    def _refusal(self, table: Table) -> tuple[Bound, StagingFull] | None:
        """Return the bound that ``table`` has reached, with its error; None if there is room."""
        bounds = self._bounds
        with self._lock:
            known, area = self._known, self._known.areas.get(table.id, _Area())
            size, all_size = area.size + self._pending.get(table.id, 0), known.size + sum(self._pending.values())
        table_has, all_have = f"the staging area of {table.full_name} has", "the staging areas of all tables have"
        limits = (
            (Bound.TABLE_BYTES, table_has, size, bounds.table_bytes, "bytes", " (KEYFOLD_STAGED_TABLE_MIB)"),
            (Bound.TABLE_RECORDS, table_has, area.records, bounds.table_records, "records", ""),
            (Bound.BYTES, all_have, all_size, bounds.all_bytes, "bytes", " (KEYFOLD_STAGED_MIB)"),
            (Bound.RECORDS, all_have, known.records, bounds.all_records, "records", ""),
        )
        for bound, whose, value, most, unit, setting in limits:
            if value >= most:
                code = FaultCode.STAGED_BYTES if unit == "bytes" else FaultCode.STAGED_RECORDS
                return bound, _full(table, code, f"{whose} {value} {unit}, and the most is {most}{setting}")
        return self._too_late(table, area)

    def _too_late(self, table: Table, area: _Area) -> tuple[Bound, StagingFull] | None:
        if area.oldest is None or self._known.now is None:
            return None
        staleness: timedelta = table.schema.parsed["merge.max-staleness"]
        age = self._known.now - area.oldest + timedelta(seconds=self._clock() - self._known.read_at)
        if age <= staleness + self._bounds.late:
            return None
        message = (
            f"the oldest staged batch of {table.full_name} waits for its merge for {age.total_seconds():.0f} seconds,"
            f" and {(staleness + self._bounds.late).total_seconds():.0f} is the most (merge.max-staleness"
            f" and {self._bounds.late.total_seconds():.0f} seconds)"
        )
        return Bound.TABLE_AGE, _full(table, FaultCode.STAGED_TOO_LONG, message)

    def read(self) -> None:
        """Read the staging areas. Raise ``Unavailable`` if the catalog does not answer."""
        with self._turn:
            with self._lock:
                self._accepted.clear()
            read_at = self._clock()
            with self._database.reading() as repository:
                known = _Known(read_at, repository.now())
                for table in repository.stats.staged_tables():
                    staged = table.staged
                    known.add(table.table_id, staged.records, staged.size_bytes, staged.oldest_accepted_at)
            with self._lock:
                for accepted in self._accepted:  # perhaps once too often, for a second
                    known.add(*accepted)
                self._known = known


def _full(table: Table, code: FaultCode, message: str) -> StagingFull:
    text = f"{message}; nothing was stored"
    return StagingFull(
        text, violations=[Violation("", code, text, _WAIT)], resource_type="TABLE", resource_name=table.name
    )
