"""What one input may take: time of the processor and of the clock, ended by alarms, and memory, as the kernel counts it
(on Linux; nowhere else).
"""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

SECONDS: Final = 5  # of the processor: a machine that is busy with others makes no hang
WAITED_SECONDS: Final = 60
MIB: Final = 500
_STUCK_SECONDS: Final = 120  # when not even an alarm is heard, for no byte of Python runs
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class TooMuch(AssertionError):
    """An input took more time or memory than any may."""


def _alarmed(number: int, _frame: FrameType | None) -> None:
    raise TooMuch(f"it takes too long, says {signal.Signals(number).name}")


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raises ``TooMuch`` in the block when it works longer than that, or waits for a minute. When even that does not
    end it the process is ended, and reports where each thread was.
    """
    alarms = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, WAITED_SECONDS)}
    before = {number: signal.signal(number, _alarmed) for number in alarms}
    faulthandler.dump_traceback_later(_STUCK_SECONDS, exit=True)
    for timer, after in alarms.values():
        signal.setitimer(timer, after)
    try:
        yield
    finally:
        for timer, _ in alarms.values():
            signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()
        for number, known in before.items():
            signal.signal(number, known)


@contextmanager
def in_memory(mib: int = MIB) -> Iterator[None]:
    """Raises ``TooMuch`` when the block took more memory at a time than it found in use."""
    if not _CLEAR.exists():
        yield
        return
    _CLEAR.write_text("5")  # the peak is what is in use now
    before = _kib("VmHWM")
    yield
    taken = (_kib("VmHWM") - before) // 1024
    if taken > mib:
        raise TooMuch(f"it takes {taken} MiB")


def _kib(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])
