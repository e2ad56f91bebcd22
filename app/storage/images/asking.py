"""Requests of this process for images, and the builder that it keeps running for them (decision 17)."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import NamedTuple

from cachetools import LRUCache

from app.files.layout import Warehouse
from app.storage.images.lock import builders_lock
from app.storage.images.requests import STATES, ImageName, ImageRequest
from app.telemetry.entries import Counted
from app.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
# Pause before a builder is started: requests come in bursts.
_GATHER_SECONDS = 0.5
# An image that could not be made is requested again after this time, doubled each time.
_REFUSED_SECONDS = 60.0
_LONGEST_REFUSAL = 1800.0  # a table that is too large for this machine's images may have thousands
_KNOWN_REFUSALS = 50_000
_LONGEST_PAUSE = 60.0
# A request that is gone counts as refused after this many checks: another process may have withdrawn it.
_GONE_LOOKS = 8


class _Refusal(NamedTuple):
    """An image that could not be made: when it may be requested again, and the length of that pause."""

    until: float
    pause: float


class Asking:
    """The requested images. A thread runs while there are any: it starts a builder, and another
    one if that is killed.
    """

    def __init__(
        self,
        folder: Path,
        warehouse: Warehouse,
        limit: int,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.builds = True  # whether this process keeps a builder running
        self._folder = folder
        self._metrics = metrics
        self._limit = limit
        self._settings = json.dumps({"folder": str(folder), "warehouse": warehouse.root, "limit": limit})
        self._open: dict[ImageName, int] = {}  # in how many looks the request was gone
        self._answers: set[tuple[str, str]] = set()  # run and file of those that are images of answers
        self._clock = clock
        self._refused: LRUCache[ImageName, _Refusal] = LRUCache(_KNOWN_REFUSALS)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._starts = 0
        self._next_start = 0.0

    def ask(self, name: ImageName, request: Callable[[], ImageRequest]) -> None:
        """Request an image, unless it is being made or could not be made recently."""
        if name in self._open:
            return
        with self._lock:
            if name in self._open or self._is_refused(name) or self._closed.is_set() or not self._limit:
                return
            try:
                request().post(self._folder)
            except OSError as error:
                # A full disk, or a folder of another user: lookups work without images. Log one line per reason.
                logger.warning("no image can be requested in %s: %s", self._folder, error)
                self._refuse(name)
                return
            self._open[name] = 0
            if name.form != STATES:
                self._answers.add((name.run_id, name.file))
            if self._thread is None:
                self._next_start = max(self._next_start, time.monotonic() + _GATHER_SECONDS)
                self._thread = threading.Thread(target=self._watch, name="images", daemon=True)
                self._thread.start()

    def awaits_answers(self, run_id: str, file: str) -> bool:
        """Return whether the answers of a file are requested, so that lookups may soon need no state rows."""
        return (run_id, file) in self._answers

    def withdraw(self, table_id: str, run_ids: Container[str]) -> None:
        """Withdraw requests for images of runs that no lookup will read: with a new run every second most are obsolete
        before their turn, and would delay the others.
        """
        with self._lock:
            for name in [image for image in self._open if image.table_id == table_id and image.run_id in run_ids]:
                self._open.pop(name)
                name.request_path(self._folder).unlink(missing_ok=True)
                self._metrics.count(Counted.IMAGES_REQUESTED, "withdrawn")
            self._note_answers()

    def settled(self, timeout: float) -> bool:
        """Return whether no request is left, after at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self._open and time.monotonic() < deadline:
            self._closed.wait(_LOOK_SECONDS)
        return not self._open

    def close(self) -> None:
        """Stop requesting, and end the builder that this process has started; other processes start their own."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                if not self._look():
                    return
            except OSError:
                logger.warning("the builder of images cannot be started; retried later", exc_info=True)

    def _look(self) -> bool:
        """Drop answered requests, and start a builder for the rest. Return whether there are any."""
        with self._lock:
            for name in [image for image in self._open if not image.request_path(self._folder).exists()]:
                self._open[name] += 1
                made = name.path(self._folder).exists()
                if not made and self._open[name] < _GONE_LOOKS:
                    continue
                del self._open[name]
                self._metrics.count(Counted.IMAGES_REQUESTED, "made" if made else "refused")
                if made:
                    self._refused.pop(name, None)
                else:
                    self._refuse(name)
            self._note_answers()
            if not self._open:
                self._thread = None
                self._starts = 0
                return False
        running = self._process is not None and self._process.poll() is None
        if self.builds and not running and time.monotonic() >= self._next_start and self._no_builder():
            self._start()
        return True

    def _note_answers(self) -> None:
        self._answers = {(name.run_id, name.file) for name in self._open if name.form != STATES}

    def _is_refused(self, name: ImageName) -> bool:
        refusal = self._refused.get(name)
        return refusal is not None and refusal.until > self._clock()

    def _refuse(self, name: ImageName) -> None:
        before = self._refused.get(name)
        pause = _REFUSED_SECONDS if before is None else min(2 * before.pause, _LONGEST_REFUSAL)
        self._refused[name] = _Refusal(self._clock() + pause, pause)

    def _no_builder(self) -> bool:
        with builders_lock(self._folder) as free:
            return free

    def _start(self) -> None:
        self._next_start = time.monotonic() + min(_LONGEST_PAUSE, 2.0**self._starts)
        self._starts += 1
        command = [sys.executable, "-m", "app.storage.images.builder"]
        self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        if self._process.stdin is not None:
            with self._process.stdin as stdin:
                stdin.write(self._settings)
