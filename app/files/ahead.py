"""Work in a separate thread, one piece ahead of its consumer: Arrow does most without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(pieces: Iterator[T]) -> Generator[T]:
    """Yield the same pieces, each made in a thread while the caller has the one before."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece
