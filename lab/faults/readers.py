"""A reader that looks while faults strike: an answer is of one moment, each of its batches in it whole and once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import httpx

from lab.faults.clients import Generation, Seen
from lab.faults.ledger import SERIALS
from lab.faults.system import System
from lab.faults.tables import TABLES

PAUSE_SECONDS = 0.5
Rows = Iterable[Mapping[str, Any]]


def torn(rows: Rows, keys_of_a_batch: int) -> list[str]:
    """What is wrong with a whole table at one moment: each of its batches has written a serial to so many keys."""
    seen = Counter(serial for row in rows for serial in row[SERIALS] or ())
    return [
        f"serial {serial} is in {count} rows, not {keys_of_a_batch}"
        for serial, count in seen.items()
        if count != keys_of_a_batch
    ]


class Reader(threading.Thread):
    """Scans tables of collected serials; asks for the rows of a snapshot again and again, which stay as they are."""

    def __init__(self, system: System, place: int, seed: int, seen: Seen) -> None:
        super().__init__(name=f"reader {place}", daemon=True)
        self.system = system
        self.place = place
        self.random = Random(f"reads {seed} {place}")
        self.seen = seen
        self.generation: Generation | None = None
        self.ended = threading.Event()
        self._pinned: dict[str, str] = {}

    def run(self) -> None:
        """Look until the end is set."""
        with self.system.client(self.place, timeout=10) as http:
            while not self.ended.wait(self.random.random() * PAUSE_SECONDS):
                if self.generation is None:
                    continue
                try:
                    self._look(http, self.generation)
                except httpx.HTTPError:
                    time.sleep(0.2)
                except Exception as error:  # the campaign reports it
                    self.seen.tell(f"the reader itself failed: {error!r}")

    def _look(self, http: httpx.Client, generation: Generation) -> None:
        name = self.random.choice([name for name, drawn in TABLES.items() if drawn.collected])
        wanted = self.random.choice(["latest", "merged", "snapshot"])
        query = self._snapshot(http, generation, name) if wanted == "snapshot" else f"consistency={wanted}"
        if query is None:
            return
        answer = http.get(f"{generation.path(name)}/rows:scan?{query}")
        self.seen.check("scanRows", answer)
        if answer.status_code != 200:
            return
        rows = [json.loads(line) for line in answer.text.splitlines()]
        with self.seen.lock:
            self.seen.rows_read += len(rows)
        for one in torn(rows, TABLES[name].collected)[:3]:
            self.seen.tell(f"scan of {name} with {query}: {one}")
        if wanted == "snapshot":
            self._pin(f"{generation.path(name)} {query}", rows)

    def _snapshot(self, http: httpx.Client, generation: Generation, name: str) -> str | None:
        """One of the newest snapshots, as a parameter."""
        answer = http.get(f"{generation.path(name)}/snapshots?maxResults=5")
        self.seen.check("listSnapshots", answer)
        listed = answer.json().get("snapshots") if answer.status_code == 200 else None
        return f"snapshot={self.random.choice(listed)['id']}" if listed else None

    def _pin(self, what: str, rows: list[dict[str, Any]]) -> None:
        """A snapshot is the same each time, but for columns that an ALTER has added or dropped since."""
        plain = sorted(json.dumps({key: value for key, value in row.items() if key != "more"}) for row in rows)
        joined = "\n".join(plain)
        before = self._pinned.setdefault(what, joined)
        if before != joined:
            self.seen.tell(f"{what} has changed: {len(before)} and {len(joined)} characters")
