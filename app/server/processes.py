"""The processes of one service: a parent that only watches, and the children that work (docs/decisions/0018)."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

logger = logging.getLogger(__name__)
# A stage of processes has this long to end before it is killed.
STOP_SECONDS: Final = 20.0
SHORT_LIFE_SECONDS: Final = 5.0
# The service gives up after a process has died early this many times in a row.
MOST_SHORT_LIVES: Final = 3
_PAUSE_SECONDS: Final = 0.3
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


@dataclass(frozen=True)
class Role:
    """The work of one process: ``run`` returns after SIGTERM. Roles of a lower ``stage`` are stopped first."""

    name: str
    run: Callable[[], None]
    stage: int = 0


@dataclass
class _Life:
    """A process with a role, begun at ``began`` (seconds of the monotonic clock)."""

    role: Role
    began: float
    short_lives: int = 0
    ended: str = ""  # how it ended, for the log


def status_of(number: int) -> int:
    """Return the exit status of a service that a signal stopped: 0, or 130 as shells expect of Ctrl-C."""
    return 128 + number if number == signal.SIGINT else 0


class Supervisor:
    """Starts one process per role by forking, restarts those that die, and ends all of them on a signal.

    The children end with their parent, however it ends: each waits for the end of a pipe that only the parent keeps
    open. No thread may be started before ``run``.
    """

    def __init__(self, roles: Sequence[Role], stop_seconds: float = STOP_SECONDS) -> None:
        self._roles = roles
        self._stop_seconds = stop_seconds
        self._lives: dict[int, _Life] = {}
        self._pipe = os.pipe()

    def run(self) -> NoReturn:
        """Run the service. This never returns: the process exits with ``status_of`` the signal, or with 1 if a role
        keeps dying.
        """
        signal.signal(signal.SIGCHLD, lambda *_: None)  # one that is ignored cannot be waited for
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        gc.freeze()  # so that garbage collection in a child does not copy memory that it shares with its parent
        for role in self._roles:
            self._start(_Life(role, time.monotonic()))
        number = self._watch()
        for stage in sorted({role.stage for role in self._roles}):
            self._end(stage)
        raise SystemExit(1 if number is None else status_of(number))

    def _start(self, life: _Life) -> None:
        pid = os.fork()
        if pid == 0:
            self._live(life.role)
        self._lives[pid] = life
        logger.info("process %d is %s", pid, life.role.name)

    def _live(self, role: Role) -> NoReturn:
        """Run the role in the child, and exit."""
        status = 1
        try:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(self._pipe[1])
            threading.Thread(target=_end_with_parent, args=(self._pipe[0],), name="parent", daemon=True).start()
            role.run()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            logger.exception("%s ends by an error", role.name)
        finally:
            logging.shutdown()
            os._exit(status)

    def _watch(self) -> int | None:
        """Restart processes that die, until a signal, which is returned; None if a role keeps dying."""
        while (number := signal.sigwait(_SIGNALS)) == signal.SIGCHLD:
            for dead in self._reap():
                if not self._again(dead):
                    return None
        return number

    def _again(self, dead: _Life) -> bool:
        """Restart the role; return false if it died young too often."""
        lived = time.monotonic() - dead.began
        short = dead.short_lives + 1 if lived < SHORT_LIFE_SECONDS else 0
        logger.error("%s ended %s after %.0f s", dead.role.name, dead.ended, lived)
        if short >= MOST_SHORT_LIVES:
            logger.error("%s cannot be kept alive; the service ends", dead.role.name)
            return False
        time.sleep(_PAUSE_SECONDS * short)
        self._start(_Life(dead.role, time.monotonic(), short))
        return True

    def _end(self, stage: int) -> None:
        deadline = time.monotonic() + self._stop_seconds
        self._signal(stage, signal.SIGTERM)
        while self._of(stage) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)
        self._signal(stage, signal.SIGKILL)
        while self._of(stage):
            self._reap()
            time.sleep(0.02)

    def _reap(self) -> list[_Life]:
        """Return the processes that have ended."""
        ended = []
        with contextlib.suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG))[0] != 0:
                life = self._lives.pop(child[0])
                life.ended = _how(os.waitstatus_to_exitcode(child[1]))
                ended.append(life)
        return ended

    def _of(self, stage: int) -> list[int]:
        return [pid for pid, life in self._lives.items() if life.role.stage == stage]

    def _signal(self, stage: int, number: int) -> None:
        for pid in self._of(stage):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _how(code: int) -> str:
    """Return the end of a process in words, by its exit code, which is negative for a signal."""
    if code >= 0:
        return f"with status {code}"
    try:
        return f"by {signal.Signals(-code).name} ({signal.strsignal(-code)})"
    except ValueError:
        return f"by signal {-code}"


def _end_with_parent(pipe: int) -> None:
    with contextlib.suppress(OSError):
        os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGKILL)
