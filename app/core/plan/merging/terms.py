"""The terms that columns are computed from, and the questions that a rule may ask about an unknown value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum


class NotByForm(Exception):
    """The result depends on more than a rule may ask about placeholders."""


class Side(StrEnum):
    """Which of two state rows of a key; where there is one, it is the older."""

    OLDER = "older"
    NEWER = "newer"


@dataclass(frozen=True)
class Stored:
    """The value that a state row stores in ``column``."""

    side: Side
    column: str


@dataclass(frozen=True)
class Member:
    """A member of a ROW."""

    term: Term
    name: str


@dataclass(frozen=True)
class Ranked:
    """The place of a FLOAT or DOUBLE in the order of its type, as ``float_rank`` says it."""

    term: Term


@dataclass(frozen=True)
class Added:
    """A sum of two numbers of one column's type, out of its range where it must be."""

    left: Term
    right: Term


@dataclass(frozen=True)
class EitherBits:
    """The bits of either of two words."""

    left: Term
    right: Term


@dataclass(frozen=True)
class Negated:
    """0 minus a number, out of the range of its type where it must be."""

    term: Term


@dataclass(frozen=True)
class Summed:
    """The exact sum of numbers of FLOAT or DOUBLE, each with its rest (None: it has none), rounded once.

    ``single``: rounded to FLOAT, else to DOUBLE. See ``app.core.rules.float_sums``.
    """

    parts: tuple[tuple[Term, Term | None], ...]
    single: bool


@dataclass(frozen=True)
class RestOf:
    """The part of a sum that rounding removes; null if it removes nothing."""

    total: Summed


@dataclass(frozen=True)
class RowOf:
    """A ROW made of others, by the names of its members."""

    members: tuple[tuple[str, Term | Constant], ...]


Term = Stored | Member | Ranked | Added | Negated | EitherBits | Summed | RestOf | RowOf
Constant = bool | int | Decimal | None


@dataclass(frozen=True)
class IsNull:
    """Whether there is no value."""

    term: Term


@dataclass(frozen=True)
class IsTrue:
    """Whether a BOOLEAN is true, or a number is not 0."""

    term: Term


@dataclass(frozen=True)
class HasBits:
    """Whether a word has one of ``bits``."""

    term: Term
    bits: int


@dataclass(frozen=True)
class IsLess:
    """Whether the left value sorts before the right one."""

    left: Term | Constant
    right: Term | Constant


@dataclass(frozen=True)
class IsEqual:
    """Whether two values are one."""

    left: Term
    right: Term | Constant


@dataclass(frozen=True)
class IsFinite:
    """Whether a FLOAT or DOUBLE is neither infinite nor NaN."""

    term: Term


@dataclass(frozen=True)
class IsShort:
    """Whether whole columns hold a sum: a finite number, with a rest of one number at most."""

    sum: Summed


Question = IsNull | IsTrue | HasBits | IsLess | IsEqual | IsFinite | IsShort
Answers = Mapping[Question, bool]
Outcome = Mapping[str, Term | Constant]
"""What columns are made of; those that it does not name stay."""
