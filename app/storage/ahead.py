"""Work in a thread of its own, one piece ahead of whoever takes it: Arrow does most without the interpreter's lock. And
what its memory becomes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

import pyarrow as pa

T = TypeVar("T")
_MUCH: Final = 16 * 2**20  # bytes


def ahead(pieces: Iterator[T]) -> Generator[T]:
    """The same pieces, each made in a thread while whoever asked has the one before."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece


@contextmanager
def memory_given_back(size_bytes: int) -> Iterator[None]:
    """What Arrow keeps for later goes back to the system, in some milliseconds, where so many bytes were in memory that
    it is much. What was made of them must be gone before.
    """
    try:
        yield
    finally:
        if size_bytes > _MUCH:
            pa.default_memory_pool().release_unused()
