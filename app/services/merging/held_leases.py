"""The leases that one worker holds: how many of its places are taken, and the tasks under way when it ends."""

from __future__ import annotations

import threading
from collections.abc import Collection

from app.core.table.history import TaskKind
from app.services.merging.leases import Lease


class HeldLeases:
    """The tasks that a worker is running. Safe to share between its threads."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()
        self._changed = threading.Condition()
        self._ended = False

    def hold(self, lease: Lease | None) -> Lease | None:
        """Hold the lease and return it; None if there is none, or the worker is ending: then it is handed back."""
        if lease is None:
            return None
        with self._changed:
            if not self._ended:
                self._held.add(lease)
                return lease
        lease.hand_back()
        return None

    def let_go(self, leases: Collection[Lease]) -> None:
        """Remove the leases of finished tasks."""
        with self._changed:
            self._held.difference_update(leases)
            self._changed.notify_all()

    def merging(self) -> int:
        """Return how many merges are under way."""
        with self._changed:
            return sum(lease.claimed.task.kind is TaskKind.MERGE for lease in self._held)

    def wait_for_place(self, places: int, seconds: float) -> None:
        """Wait until fewer merges than ``places`` are under way, the worker ends, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self.merging() < places, seconds)

    def end(self, seconds: float) -> Collection[Lease]:
        """Take no more leases. Return those that are still held after ``seconds``."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._held, seconds)
            return list(self._held)
