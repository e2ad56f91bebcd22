"""The declaration of an option: its key, parser, meaning, and when it may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any

from app.core.table.options.values import WORDS, OneOf, boolean, size, spelled_duration, spelled_size


class Change(Enum):
    """How an option may change once records were posted. Before that all may."""

    FREE = "at any time"
    NEVER = "never"  # stored rows were folded under it
    TURNED_ON = "can be turned on, never off"  # records that it dropped are gone, those that were kept stay


class Names(Enum):
    """The names in an option's value: a rename of a column rewrites them (docs/semantics.md, Q19)."""

    NOTHING = "nothing"
    COLUMN = "a column"
    COLUMNS = "a list of columns"
    FIELD = "a field of the ROW in the column's ARRAY or MAP"
    FIELDS = "a list of such fields"


_NEW_TABLE = "create a new table with the option and post the records there"


@dataclass(frozen=True)
class Option:
    """One option.

    ``parse`` reads its text and raises ValueError with the fix; ``meaning`` is its description. ``folds``: it decides
    the meaning of a run's rows; only such options reach the rules of the merge plan. ``change`` says when it may
    change, ``instead`` the alternative if it cannot. ``names`` says what kind of names its value has; ``effect``
    whether Keyfold uses it. ``aliases`` are its older keys. ``of_function``: an option of a column that belongs to its
    aggregate function. ``engines`` are the merge engines that have the option; empty: all of them.
    """

    key: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    folds: bool = False
    change: Change = Change.FREE
    instead: str = _NEW_TABLE
    names: Names = Names.NOTHING
    effect: bool = True
    aliases: tuple[str, ...] = ()
    of_function: bool = False
    engines: tuple[StrEnum, ...] = ()

    @property
    def choices(self) -> tuple[str, ...]:
        """All values that it takes, where these are a few; empty if they are not."""
        if isinstance(self.parse, OneOf):
            return tuple(self.parse.choices)
        return ("true", "false") if self.parse is boolean else ()

    @property
    def takes(self) -> str:
        """The kind of its value: a type, or the thing that the value names."""
        if self.names is not Names.NOTHING:
            return str(self.names.value)
        return "one of these words" if isinstance(self.parse, OneOf) else WORDS[self.parse]

    def of_engine(self, engine: StrEnum) -> bool:
        """Return whether tables of the merge engine have the option."""
        return not self.engines or engine in self.engines

    @property
    def default_text(self) -> str:
        """The default as a user would write it; empty if there is none."""
        if isinstance(self.default, bool):
            return "true" if self.default else "false"
        if isinstance(self.default, timedelta):
            return spelled_duration(self.default)
        if self.parse is size:
            return spelled_size(self.default)
        return "" if self.default in (None, ()) else str(self.default)
