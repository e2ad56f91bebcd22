"""Values of the data types, and how messages show them.

In memory: BOOLEAN bool, integers int, FLOAT and DOUBLE float, DECIMAL Decimal, text str, binary bytes, DATE date, TIME
the milliseconds of the day, TIMESTAMP a naive and TIMESTAMP_LTZ a UTC datetime, ARRAY list, ROW dict by field name,
MAP and MULTISET a list of (key, value) pairs.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from app.core.errors import FaultCode

Decode = Callable[[Any], Any]
Encode = Callable[[Any], Any]


class ValueFault(ValueError):
    """A value that its column cannot take; ``path`` leads to it inside a nested value (JSON pointer segments)."""

    def __init__(self, code: FaultCode, message: str, fix: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.fix = fix
        self.path = path

    def inside(self, segment: object) -> ValueFault:
        """Return the same fault with ``segment`` before its path, as the value around it reports it."""
        return ValueFault(self.code, str(self), self.fix, (str(segment), *self.path))


def wrong(expected: str, value: object, fix: str) -> ValueFault:
    """Return the fault of a value that does not have the expected type."""
    return ValueFault(FaultCode.WRONG_TYPE, f"{shown(value)} is not {expected}", fix)


def shown(value: object) -> str:
    """Return a value as messages show it, cut to 60 characters; no more of it is read."""
    try:
        text = _SHORT.repr(value) if not isinstance(value, Decimal) else str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


class _Short(reprlib.Repr):
    """``repr`` of the beginning of a value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxdict = self.maxtuple = self.maxlong = self.maxother = 60

    def repr_str(self, text: str, _level: int) -> str:
        """Return the beginning of a text, without its end."""
        return repr(text[:61])

    def repr_int(self, number: int, _level: int) -> str:
        """Return a whole number. Raise ``ValueError`` for one of thousands of digits."""
        return repr(number)


_SHORT = _Short()


def one_zero(value: Any) -> Any:
    """-0.0 as 0.0: keys that Spark takes for equal have one form."""
    return value + 0.0 if isinstance(value, float) else value


def value_text(encoded: Any) -> str:
    """Return a scalar's JSON value as text, as it is in a URL or an object's member name."""
    if isinstance(encoded, bool):
        return "true" if encoded else "false"
    return encoded if isinstance(encoded, str) else str(encoded)
