"""The memory of long-running processes."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8  # malloc.h of glibc


def keep_memory_flat(arenas: int) -> None:
    """Let Arrow and Python share the allocator of the C library, with this number of ``arenas`` for all threads.

    Arrow's own allocator, and glibc, keep memory that any of some twenty threads once used. Processes that answered
    200 clients grew from 110 to 450 MiB each within an hour, with 30 KiB of Arrow in use. A task of Spark holds 90 MiB
    less (bench/README.md). Call this before pyarrow is imported, which reads its variable then.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError):  # glibc alone has mallopt
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, arenas)


def give_memory_back() -> None:
    """Return freed memory to the system: the allocator would keep 300 MiB after a large task, 1 GiB after twelve
    concurrent scans of wide rows.
    """
    with suppress(AttributeError):  # glibc alone has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
