"""A table's options as typed values, with the faults of those that cannot be read. A schema reads them once, as
``TableSchema.parsed``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.core.errors import About, FaultCode, Violation, escape_pointer
from app.core.hints import nearest
from app.core.table.options.entries import (
    DEFAULT_FUNCTION,
    FALLBACK_KEYS,
    FIELD_OPTIONS,
    REMOVED_OPTIONS,
    TABLE_OPTIONS,
    MergeEngine,
    find_option,
)
from app.core.table.options.option import Option
from app.core.table.options.paimon import PAIMONS_OWN, is_misspelt, missing_feature
from app.core.table.options.values import names

# Only the first faults of a schema come with a "did you mean": its search compares all known names.
MOST_HINTS = 20


@dataclass(frozen=True)
class SequenceGroup:
    """Ordering fields and the columns they protect; ``key`` is the option that declares it."""

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    key: str

    @property
    def followers(self) -> tuple[str, ...]:
        """The protected columns that do not order the group themselves."""
        ordering = frozenset(self.ordering)
        return tuple(name for name in self.protected if name not in ordering)


@dataclass(frozen=True)
class TableOptions:
    """A table's options: ``values`` by key, ``fields`` by column and suffix, as far as they are set.

    ``faults`` are the keys and values that could not be read; such an option counts as not set.
    """

    values: Mapping[str, Any]
    fields: Mapping[tuple[str, str], Any]
    declared_groups: tuple[SequenceGroup, ...] = ()
    faults: tuple[Violation, ...] = ()

    def __getitem__(self, key: str) -> Any:
        entry = self._seen(TABLE_OPTIONS[key])
        return self.values.get(key, entry.default)

    def given(self, key: str) -> bool:
        """Return whether the table sets the option."""
        return self._seen(TABLE_OPTIONS[key]).key in self.values

    def of_field(self, column: str, suffix: str) -> Any:
        """Return the value of ``fields.<column>.<suffix>``, its default if it is not set."""
        entry = self._seen(FIELD_OPTIONS[suffix])
        return self.fields.get((column, suffix), entry.default)

    def of_function(self, column: str) -> dict[str, Any]:
        """Return the options of the column's function by suffix; ``given`` holds the suffixes that the table sets."""
        by_suffix = {
            suffix: self.of_field(column, suffix) for suffix, entry in FIELD_OPTIONS.items() if entry.of_function
        }
        return by_suffix | {"given": self._given_of_columns.get(column, frozenset())}

    @cached_property
    def _given_of_columns(self) -> Mapping[str, frozenset[str]]:
        given: defaultdict[str, set[str]] = defaultdict(set)
        for column, suffix in self.fields:
            given[column].add(suffix)
        return {column: frozenset(suffixes) for column, suffixes in given.items()}

    @property
    def engine(self) -> MergeEngine:
        """The merge engine."""
        engine: MergeEngine = self["merge-engine"]
        return engine

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """The sequence groups, as declared."""
        self._seen(FIELD_OPTIONS["sequence-group"])
        return self.declared_groups

    def group_of(self, column: str) -> SequenceGroup | None:
        """Return the sequence group that the column is in, as an ordering or as a protected column."""
        return self._groups_by_column.get(column)

    @cached_property
    def _groups_by_column(self) -> Mapping[str, SequenceGroup]:
        return {name: group for group in reversed(self.groups) for name in (*group.ordering, *group.protected)}

    @cached_property
    def folding(self) -> FoldingOptions:
        """The options that decide what rows mean. The rules of a merge plan may read no others."""
        return FoldingOptions(
            {key: value for key, value in self.values.items() if key in TABLE_OPTIONS and TABLE_OPTIONS[key].folds},
            {place: value for place, value in self.fields.items() if FIELD_OPTIONS[place[1]].folds},
            self.declared_groups,
        )

    def _seen(self, entry: Option) -> Option:
        return entry


class FoldingOptions(TableOptions):
    """The options that are declared ``folds``. Reading another one raises ``LookupError``: an option that decides the
    meaning of rows must be declared so in its entry.
    """

    def _seen(self, entry: Option) -> Option:
        if not entry.folds:
            raise LookupError(f"option {entry.key!r} shapes what rows mean, but its entry does not say folds=True")
        return entry


def field_key(column: str, suffix: str) -> str:
    """Return the key of a column's option."""
    return f"fields.{column}.{suffix}"


def option_violation(key: str, code: FaultCode, message: str, fix: str, *columns: str) -> Violation:
    """Return a fault of the option ``key``; ``columns`` are those that conflict with it."""
    return Violation(f"/options/{escape_pointer(key)}", code, message, fix, about=About(key, columns))


def parse_options(options: Mapping[str, str], columns: Collection[str]) -> TableOptions:
    """Return the options of a table with these columns, as typed values. Read ``TableSchema.parsed`` instead, which
    calls this once.
    """
    faults: list[Violation] = []
    values: dict[str, Any] = {}
    groups: list[SequenceGroup] = []
    fields: dict[tuple[str, str], Any] = {}
    for key, text in options.items():
        if key != DEFAULT_FUNCTION and (key == "fields" or key.startswith("fields.")):
            _read_field_option(columns, key, text, groups, fields, faults)
        else:
            _read_table_option(key, text, values, faults)
    return TableOptions(values, fields, tuple(groups), tuple(faults))


def misspelt_options(keys: Iterable[str]) -> list[Violation]:
    """Return the ``keys`` that are neither Keyfold's nor Paimon's in a family with options of Keyfold.

    Checked when an option is set: a table that already has such an option continues without it.
    """
    faults: list[Violation] = []
    for key in keys:
        if key not in TABLE_OPTIONS and is_misspelt(key):
            faults.append(_unknown_option(key, faults))
    return faults


def _unknown_option(key: str, before: Sequence[Violation]) -> Violation:
    feature = missing_feature(key)
    if feature is not None:
        message = f"option {key!r} is of Paimon's {feature}, which Keyfold does not have"
        return option_violation(key, FaultCode.UNKNOWN_OPTION, message, "remove it")
    if key in REMOVED_OPTIONS:
        message = f"option {key!r} is gone: {REMOVED_OPTIONS[key]}"
        return option_violation(key, FaultCode.UNKNOWN_OPTION, message, "remove it")
    known = [*TABLE_OPTIONS, *FALLBACK_KEYS, *PAIMONS_OWN]
    return option_violation(key, FaultCode.UNKNOWN_OPTION, f"unknown option {key!r}", _did_you_mean(key, known, before))


def _read_table_option(key: str, text: str, values: dict[str, Any], faults: list[Violation]) -> None:
    option = find_option(key)
    if option is None:
        faults.append(_unknown_option(key, faults))
        return
    read: dict[str, Any] = {}
    _read_value(option, option.key, key, text, read, faults)
    if key == option.key or option.key not in values:
        values.update(read)


def _read_value(
    option: Option, place: Any, key: str, text: str, values: dict[Any, Any], faults: list[Violation]
) -> None:
    """Store the value in ``values[place]``, or append its fault. ``key`` is the option as the request spells it."""
    try:
        values[place] = option.parse(text)
    except ValueError as error:
        message = f"option {key} has the value {text!r}"
        faults.append(option_violation(key, FaultCode.ILLEGAL_OPTION_VALUE, message, str(error)))


def _did_you_mean(word: str, known: Iterable[str], before: Sequence[Violation]) -> str:
    """Return the fix of a wrong name. With many faults ``before`` it, the search for a similar name is left out."""
    near = nearest(word, known) if len(before) < MOST_HINTS else None
    return f"did you mean {near}?" if near else "remove it"


def _read_field_option(
    known: Collection[str],
    key: str,
    text: str,
    groups: list[SequenceGroup],
    fields: dict[tuple[str, str], Any],
    faults: list[Violation],
) -> None:
    """Read ``fields.<columns>.<suffix>`` into ``groups`` or ``fields``; append its faults to ``faults``."""
    if missing_feature(key) is not None:
        faults.append(_unknown_option(key, faults))
        return
    columns = _columns_of_key(key, faults)
    if not columns:
        return
    for name in columns:
        if name not in known:
            message, fix = f"option {key!r} names the unknown column {name!r}", _did_you_mean(name, known, faults)
            faults.append(option_violation(key, FaultCode.UNKNOWN_COLUMN, message, fix, name))
    suffix = key.rpartition(".")[2]
    if suffix not in FIELD_OPTIONS:
        faults.append(_unknown_suffix(key, faults))
    elif suffix == "sequence-group":
        groups.append(SequenceGroup(columns, names(text), key))
    elif len(columns) > 1:
        message = f"option {key!r} names several columns"
        faults.append(option_violation(key, FaultCode.MALFORMED_OPTION, message, "write one option a column"))
    else:
        _read_value(FIELD_OPTIONS[suffix], (columns[0], suffix), key, text, fields, faults)


def _columns_of_key(key: str, faults: list[Violation]) -> tuple[str, ...]:
    """Return the columns that the key of a field option names. If there are none, append a fault."""
    segments = key.split(".")
    columns = names(segments[1]) if len(segments) == 3 else ()
    if not columns:
        fix = (
            f"write fields.<column>.{segments[-1]}"
            if len(segments) < 3
            else "an option names a top-level column: fields.<column>.<option>"
        )
        faults.append(option_violation(key, FaultCode.MALFORMED_OPTION, f"option {key!r} names no column", fix))
    return columns


def _unknown_suffix(key: str, before: Sequence[Violation]) -> Violation:
    _, columns, suffix = key.split(".")
    hint = nearest(suffix, FIELD_OPTIONS) if len(before) < MOST_HINTS else None
    fix = f"did you mean fields.{columns}.{hint}?" if hint else f"known: {', '.join(FIELD_OPTIONS)}"
    return option_violation(key, FaultCode.UNKNOWN_OPTION, f"unknown option {key!r}", fix)
