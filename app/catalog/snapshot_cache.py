"""Snapshots that this process has loaded: their numbers never come again, and only forgetting keys changes them."""

from __future__ import annotations

import threading
from collections import OrderedDict

from app.core.table.history import Snapshot

MOST_FILES = 100_000  # data files of all snapshots that are kept, about 30 MiB


class SnapshotCache:
    """The snapshots used last, by table id, number and how often keys were taken out of them, with at most
    ``most_files`` data files together.

    Only committed ones may be kept: the number of a commit that was rolled back does come again. Whether a snapshot
    still exists is the catalog's to say. Safe to share between threads.
    """

    def __init__(self, most_files: int = MOST_FILES) -> None:
        self.most_files = most_files
        self._kept: OrderedDict[tuple[str, int, int], Snapshot] = OrderedDict()
        self._files = 0
        self._lock = threading.Lock()

    def get(self, table_id: str, number: int, rewritten: int = 0) -> Snapshot | None:
        """The snapshot if it is kept."""
        key = (table_id, number, rewritten)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, snapshot: Snapshot, rewritten: int = 0) -> None:
        """Keep a committed snapshot; those used longest ago make room. One that alone is too large is not kept."""
        key = (snapshot.table_id, snapshot.id, rewritten)
        with self._lock:
            if key in self._kept or _weight(snapshot) > self.most_files:
                return
            self._kept[key] = snapshot
            self._files += _weight(snapshot)
            while self._files > self.most_files:
                self._files -= _weight(self._kept.popitem(last=False)[1])


def _weight(snapshot: Snapshot) -> int:
    """Its data files; a run, and the snapshot itself, count as one each."""
    return 1 + sum(1 + len(run.files) for run in snapshot.runs)
