"""A cache of loaded snapshots: their numbers never repeat, and only forgetting keys changes them."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping

from app.core.table.history import Run, Snapshot

MOST_OF_TABLE = 16  # snapshots: a table that is merged each second would fill the cache with unused ones
MOST_FILES = 100_000  # data files of all snapshots that are kept, about 30 MiB if each were of one snapshot alone


class SnapshotCache:
    """The least recently used cache of snapshots, by table id, number and count of removals of keys. It has at most
    ``most_files`` data files, and at most ``MOST_OF_TABLE`` snapshots of a table.

    Only committed snapshots may be cached: the number of a rolled-back commit is used again. Only the catalog knows
    whether a snapshot still exists. Safe to share between threads.
    """

    def __init__(self, most_files: int = MOST_FILES) -> None:
        self.most_files = most_files
        self._kept: OrderedDict[tuple[str, int, int], Snapshot] = OrderedDict()
        self._of_table: dict[str, deque[tuple[str, int, int]]] = {}  # in the order in which they were loaded
        self._files = 0
        self._lock = threading.Lock()

    def get(self, table_id: str, number: int, rewritten: int = 0) -> Snapshot | None:
        """Return the snapshot if it is cached."""
        key = (table_id, number, rewritten)
        with self._lock:
            entry = self._kept.get(key)
            if entry is not None:
                self._kept.move_to_end(key)
            return entry

    def runs(self, table_id: str) -> Mapping[str, Run]:
        """Return the runs of the table's most recently cached snapshot, by run id: most runs of a new snapshot are
        among them, and runs never change. Runs with files without digests are left out, since these get them later.
        """
        with self._lock:
            of_table = self._of_table.get(table_id)
            snapshot = self._kept[of_table[-1]] if of_table else None
        runs = () if snapshot is None else snapshot.runs
        return {run.id: run for run in runs if all(file.block_digests for file in run.files)}

    def keep(self, snapshot: Snapshot, rewritten: int = 0) -> None:
        """Cache a committed snapshot, and evict the least recently used ones. A snapshot that is too large alone is
        not cached.
        """
        key = (snapshot.table_id, snapshot.id, rewritten)
        with self._lock:
            if key in self._kept or _weight(snapshot) > self.most_files:
                return
            self._kept[key] = snapshot
            self._files += _weight(snapshot)
            of_table = self._of_table.setdefault(snapshot.table_id, deque())
            of_table.append(key)
            if len(of_table) > MOST_OF_TABLE:
                self._drop(of_table[0])
            while self._files > self.most_files:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, int, int]) -> None:
        self._files -= _weight(self._kept.pop(key))
        of_table = self._of_table[key[0]]
        of_table.remove(key)
        if not of_table:
            del self._of_table[key[0]]


def _weight(snapshot: Snapshot) -> int:
    """Return the number of its data files, plus one for each run and one for the snapshot."""
    return 1 + sum(1 + len(run.files) for run in snapshot.runs)
