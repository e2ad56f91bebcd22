"""Functions of one column that fold value by value, and the folds that take their steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from app.core.types.datatype import DataType


class InexactFold(ArithmeticError):
    """A step whose result no column can hold, such as a decimal quotient without end."""


class Fold(ABC):
    """Values on their way into one; a step costs as much as its value is long, however many went before."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Fold in one value that is not null."""

    def add_all(self, values: Sequence[Any]) -> None:
        """Fold in each value, in order."""
        for value in values:
            self.add(value)

    def retract(self, value: Any) -> None:
        """Take one value back. At least one value was added before."""
        raise NotImplementedError("a retract that a function cannot take is refused when it is posted")

    @property
    @abstractmethod
    def value(self) -> Any:
        """The result of all steps; None if nothing was added."""


class OneByOne(Fold):
    """A fold whose steps make a new value of the last one."""

    def __init__(self, add: Callable[[Any, Any], Any], retract: Callable[[Any, Any], Any]) -> None:
        self._add, self._retract = add, retract
        self._value: Any = None

    def add(self, value: Any) -> None:
        self._value = self._add(self._value, value)

    def retract(self, value: Any) -> None:
        self._value = self._retract(self._value, value)

    @property
    def value(self) -> Any:
        return self._value


@dataclass(frozen=True)
class StepFunction:
    """A function of one column, one step per record.

    ``start`` returns an empty fold. ``associative``: the step also joins two accumulated values (adds only).
    ``fault`` and ``retract_fault`` say why a value can never be folded. ``wide``: the type in which to accumulate,
    checked against the column's when the row is read; None if that is the column's type. ``endless``: the value of
    ``wide`` that marks a step that raised ``InexactFold``; None if no step raises it. ``compares``: whole elements are
    compared, so that a field less may make two of them equal.
    """

    start: Callable[[], Fold]
    associative: bool = True
    fault: Callable[[Any], str | None] = lambda _: None
    retract_fault: Callable[[Any], str | None] = lambda _: None
    wide: DataType | None = None
    endless: Decimal | None = None
    compares: bool = False

    def folded(self, values: Sequence[Any], adds: Sequence[bool] = ()) -> Any:
        """Return the fold of ``values`` in order; ``adds`` says of each whether it is added or taken back, none: all
        are added. A retract of nothing has no effect. May raise ``InexactFold``.
        """
        fold = self.start()
        if all(adds):
            fold.add_all(values)
            return fold.value
        for value, add in zip(values[adds.index(True) :], adds[adds.index(True) :], strict=True) if any(adds) else ():
            if add:
                fold.add(value)
            else:
                fold.retract(value)
        return fold.value
