"""The ``listagg`` function: texts joined."""

from __future__ import annotations

import re
from collections.abc import Callable

from app.core.rules.step_function import Fold, OneByOne, StepFunction

Split = Callable[[str], list[str]]

# What Java's Character.isWhitespace takes for white space: no no-break spaces.
_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)


def is_blank(text: str | None) -> bool:
    """Return whether a text is null, empty or white space only."""
    return text is None or not text.strip(_BLANKS)


def listagg(delimiter: str, distinct: bool) -> StepFunction:
    """Return a fold that joins texts by ``delimiter``; with ``distinct`` only tokens that are not there yet."""
    if not distinct:
        return StepFunction(lambda: _Joined(delimiter))
    split = _splitting(delimiter)
    if not _tokens_stay(delimiter):
        return StepFunction(_splitting_again(delimiter, split), associative=False)
    return StepFunction(lambda: _DistinctTokens(delimiter, split))


class _Joined(Fold):
    """Texts that are not blank, joined."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._texts: list[str] = []

    def add(self, value: str) -> None:
        if not is_blank(value):
            self._texts.append(value)

    @property
    def value(self) -> str | None:
        return self._delimiter.join(self._texts) if self._texts else None


class _DistinctTokens(_Joined):
    """The first text unchanged, then the new tokens of each further text."""

    def __init__(self, delimiter: str, split: Split) -> None:
        super().__init__(delimiter)
        self._split = split
        self._seen: set[str] = set()

    def add(self, value: str) -> None:
        if is_blank(value):
            return
        tokens = self._split(value)
        if not self._texts:
            self._texts.append(value)
            self._seen.update(tokens)
            return
        for token in tokens:
            if token not in self._seen and not is_blank(token):
                self._seen.add(token)
                self._texts.append(token)


def _tokens_stay(delimiter: str) -> bool:
    """Return whether tokens joined by ``delimiter`` are split into the same tokens again: then no suffix of it is also
    a prefix.
    """
    return bool(delimiter) and not any(delimiter.startswith(delimiter[place:]) for place in range(1, len(delimiter)))


def _splitting_again(delimiter: str, split: Split) -> Callable[[], Fold]:
    """Return a fold that splits its result again before each text. It is not associative: joined texts are split into
    other tokens than they came with.
    """

    def add(accumulated: str | None, value: str) -> str | None:
        if is_blank(value) or accumulated is None:
            return accumulated if is_blank(value) else value
        seen = split(accumulated)
        for token in split(value):
            if not is_blank(token) and token not in seen:
                accumulated += delimiter + token
                seen.append(token)
        return accumulated

    def retract(_accumulated: str | None, _value: str) -> str | None:
        raise NotImplementedError("listagg takes no retract")

    return lambda: OneByOne(add, retract)


def _splitting(delimiter: str) -> Split:
    """Return a function that splits at ``delimiter``; an empty one stands for white space."""
    if delimiter:
        return lambda text: text.split(delimiter)
    spaces = re.compile(f"[{_BLANKS}]+")
    return lambda text: [token for token in spaces.split(text) if token]
