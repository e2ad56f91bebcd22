"""The ``listagg`` function: texts joined (merge-semantics §5.2), both meanings side by side."""

from __future__ import annotations

import re
from collections.abc import Callable

from app.core.rules.spark_sql import literal
from app.core.rules.step_function import Fold, OneByOne, StepFunction

# What Java's Character.isWhitespace takes for white space: no no-break spaces (§5.2).
_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a"
    "\u2028\u2029\u205f\u3000"
)
_BLANK_SQL = (
    r"'[\\x09-\\x0d\\x1c-\\x1f \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200a}\\x{2028}\\x{2029}\\x{205f}\\x{3000}]"
)


def is_blank(text: str | None) -> bool:
    """Whether a text is null, empty or white space only (§5.2)."""
    return text is None or not text.strip(_BLANKS)


def _blank_sql(text: str) -> str:
    return f"({text} IS NULL OR regexp_like({text}, {_BLANK_SQL.replace(chr(39), chr(39) + '^')}*$'))"


def listagg(delimiter: str, distinct: bool) -> StepFunction:
    """Texts joined by ``delimiter``; with ``distinct`` only tokens that are not there yet (§5.2)."""
    if not distinct:
        return StepFunction(lambda: _Joined(delimiter), _joined_sql(delimiter), adds_sql=_all_joined_sql(delimiter))
    if not _tokens_stay(delimiter):
        start = _splitting_anew(delimiter)
        return StepFunction(start, _distinct_sql(delimiter))
    split, _ = _splitting(delimiter)
    all_sql = _all_distinct_sql(delimiter)
    return StepFunction(lambda: _DistinctTokens(delimiter, split), _distinct_sql(delimiter), adds_sql=all_sql)


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
    """The first text as it is, then of each text the tokens that are not there yet."""

    def __init__(self, delimiter: str, split: Callable[[str], list[str]]) -> None:
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
    """Whether tokens joined by ``delimiter`` are split into the same ones again: no end of it is also its beginning."""
    return bool(delimiter) and not any(delimiter.startswith(delimiter[place:]) for place in range(1, len(delimiter)))


def _splitting_anew(delimiter: str) -> Callable[[], Fold]:
    """A fold that splits anew what it has before each text."""
    split, _ = _splitting(delimiter)

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


def _joined_sql(delimiter: str) -> Callable[[str, str], str]:
    return lambda a, v: _unless_blank_sql(a, v, f"concat({a}, {literal(delimiter)}, {v})")


def _unless_blank_sql(a: str, v: str, joined: str) -> str:
    return f"CASE WHEN {_blank_sql(v)} THEN {a} WHEN {_blank_sql(a)} THEN {v} ELSE {joined} END"


def _distinct_sql(delimiter: str) -> Callable[[str, str], str]:
    _, split_sql = _splitting(delimiter)
    joint = literal(delimiter)

    def add_sql(a: str, v: str) -> str:
        known = f"array_contains({split_sql('x')}, y)"
        step = f"IF({_blank_sql('y')} OR {known}, x, concat(x, {joint}, y))"
        return _unless_blank_sql(a, v, f"aggregate({split_sql(v)}, {a}, (x, y) -> {step})")

    return add_sql


def _filled_sql(values: str) -> str:
    return f"filter({values}, y -> NOT {_blank_sql('y')})"


def _all_joined_sql(delimiter: str) -> Callable[[str], str]:
    """As ``_Joined``: every text is copied once."""
    # Not `array_join(…)` of an empty array, which is an empty text.
    joined = f"IF(size(x) = 0, NULL, array_join(x, {literal(delimiter)}))"
    return lambda values: f"transform(array({_filled_sql(values)}), x -> {joined})[0]"


def _all_distinct_sql(delimiter: str) -> Callable[[str], str]:
    """As ``_DistinctTokens``: Spark finds the tokens that are not there yet by their hashes."""
    _, split_sql = _splitting(delimiter)
    rest = _filled_sql(f"flatten(transform(slice(x, 2, size(x)), z -> {split_sql('z')}))")
    added = f"array_except({rest}, {split_sql('x[0]')})"
    joined = f"IF(size(x) = 0, NULL, array_join(concat(array(x[0]), {added}), {literal(delimiter)}))"
    return lambda values: f"transform(array({_filled_sql(values)}), x -> {joined})[0]"


def _splitting(delimiter: str) -> tuple[Callable[[str], list[str]], Callable[[str], str]]:
    """Splits at ``delimiter``; an empty one stands for white space (§5.2)."""
    if not delimiter:
        spaces = re.compile(f"[{_BLANKS}]+")
        return (lambda text: [token for token in spaces.split(text) if token]), (
            lambda text: f"filter(split({text}, {_BLANK_SQL}+'), w -> w <> '')"
        )
    return (lambda text: text.split(delimiter)), (lambda text: f"split({text}, {literal(re.escape(delimiter))})")
