"""Background threads: steps that a process repeats, apart from its requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from app.core.errors import KeyfoldError

logger = logging.getLogger(__name__)
# The log repeats the same reason after this time.
LOG_SECONDS: Final = 60.0


class Repeated:
    """Calls ``step`` from ``start`` to ``close``, in a thread called ``name``, with ``pause_seconds()`` before each
    call. If it is ``on_demand``, it then waits until ``ask`` is called.

    A step that fails is logged, the same reason once a minute, and the next step runs as usual.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        pause_seconds: Callable[[], float],
        *,
        on_demand: bool = False,
    ) -> None:
        self._name = name
        self._step = step
        self._pause_seconds = pause_seconds
        self._on_demand = on_demand
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self) -> None:
        """Request a step if steps are ``on_demand``; several requests before it begins share it."""
        self._wanted.set()

    def close(self, patience_seconds: float | None = None) -> None:
        """Stop after the current step; wait for it, at most ``patience_seconds``."""
        self._closed.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(patience_seconds)

    def _run(self) -> None:
        reason, logged_at = "", 0.0
        while self._goes_on():
            try:
                self._step()
            except KeyfoldError as error:
                now = time.monotonic()
                if str(error) != reason or now - logged_at > LOG_SECONDS:
                    reason, logged_at = str(error), now
                    logger.warning("%s failed and is retried: %s", self._name, error)
            except Exception:
                logger.exception("%s failed and is retried", self._name)

    def _goes_on(self) -> bool:
        """Wait until the next step is due. Return whether there is one."""
        if self._closed.wait(self._pause_seconds()):
            return False
        if self._on_demand:
            self._wanted.wait()
            self._wanted.clear()
        return not self._closed.is_set()
