"""How much one read of many rows brings into memory at a time."""

from __future__ import annotations

from typing import Final

MOST_AT_ONCE: Final = 64 * 2**20


class TooMuchAtOnce(Exception):
    """The rows that were asked for take more memory than they may at a time: ask for fewer of them."""


class ReadBytes:
    """Counts the bytes of rows as each is read."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._left = most

    def add(self, size: int) -> None:
        """Raise ``TooMuchAtOnce`` if there is no room for ``size`` more."""
        self._left -= size
        if self._left < 0:
            raise TooMuchAtOnce
