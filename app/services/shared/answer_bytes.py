"""The largest answer: a request for more is refused before the memory is used (docs/sizing.md, Bounds)."""

from __future__ import annotations

from typing import Final

from app.core.errors import FaultCode, TooLarge, Violation

MOST_ANSWER_BYTES: Final = 64 * 2**20


class AnswerBytes:
    """Counts the bytes of an answer as its rows are added; ``fix`` says how to request less."""

    def __init__(self, fix: str, most: int = MOST_ANSWER_BYTES) -> None:
        self._fix, self._most = fix, most
        self._taken = 0

    def add(self, size: int) -> None:
        """Count more bytes. Raise ``TooLarge`` if the answer exceeds its bound."""
        self._taken += size
        if self._taken > self._most:
            message = f"the answer would have more than {self._most} bytes; {self._fix}"
            raise TooLarge(message, violations=[Violation("", FaultCode.TOO_LARGE, message, self._fix)])
