"""Changes of options of an existing table: which are allowed once it has rows, and the effect of renamed columns.

The rules are in the entries of options; this module loops over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from app.core.errors import FaultCode, Violation
from app.core.table.options.entries import FIELD_OPTIONS, TABLE_OPTIONS, find_option
from app.core.table.options.option import Change, Names, Option
from app.core.table.options.parsed import option_violation
from app.core.table.schema import TableSchema

Options = Mapping[str, str]

_COLUMNS = (Names.COLUMN, Names.COLUMNS)
_FIELDS = (Names.FIELD, Names.FIELDS)
_LISTS = (Names.COLUMNS, Names.FIELDS)


def immutable_violations(before: TableSchema, after: TableSchema) -> list[Violation]:
    """Return every option that a table with rows cannot change as ``after`` does, compared by meaning.

    To set an option to its default, or to spell a value differently, is no change.
    """
    return [
        fault
        for option in TABLE_OPTIONS.values()
        if option.change in _REFUSALS
        for fault in _REFUSALS[option.change](option, before, after)
    ]


def _changed(option: Option, before: TableSchema, after: TableSchema) -> Iterator[Violation]:
    if _meaning(before, option) != _meaning(after, option):
        message = f"option {option.key} cannot change once records were posted: stored rows were folded under it"
        yield option_violation(option.key, FaultCode.IMMUTABLE_OPTION, message, option.instead)


def _meaning(schema: TableSchema, option: Option) -> object:
    """Return the option's value as the table takes it; the primary key is said by the schema."""
    return schema.primary_key if option.key == "primary-key" else schema.parsed[option.key]


def _turned_off(option: Option, before: TableSchema, after: TableSchema) -> Iterator[Violation]:
    if after.parsed[option.key] == option.default != before.parsed[option.key]:
        spelled = next(key for key in (option.key, *option.aliases) if key in before.options)
        message = f"option {option.key} cannot be turned off or removed: the values that it left out of rows are lost"
        yield option_violation(
            spelled, FaultCode.IMMUTABLE_OPTION, message, f"keep {spelled} = {before.options[spelled]}"
        )


_REFUSALS: Mapping[Change, Callable[[Option, TableSchema, TableSchema], Iterator[Violation]]] = {
    Change.NEVER: _changed,
    Change.TURNED_ON: _turned_off,
}


def rename_in_key(key: str, old: str, new: str) -> str:
    """Return the option key with the column ``old`` called ``new``: ``fields.<columns>.<suffix>`` names columns."""
    segments = key.split(".")
    if len(segments) != 3 or segments[0] != "fields":
        return key
    return ".".join((segments[0], _rename_in_list(segments[1], old, new), segments[2]))


def renamed_options(options: Options, old: str, new: str) -> dict[str, str]:
    """Return ``options`` with every key and value that names the column ``old`` rewritten (docs/semantics.md, Q19)."""
    # Most options do not hold the name at all, which is found out a hundred times faster than what they name.
    return {
        (rename_in_key(key, old, new) if old in key else key): _rename_in_value(key, text, old, new)
        if old in text and _names_of(key) in _COLUMNS
        else text
        for key, text in options.items()
    }


def options_naming(options: Options, column: str) -> list[str]:
    """Return the keys of all options that name the column, in their key or in their value."""
    return [
        key
        for key, text in options.items()
        if (column in key and column in _columns_in_key(key))
        or (column in text and _names_of(key) in _COLUMNS and column in _named(key, text))
    ]


def options_naming_field(options: Options, path: Sequence[str]) -> list[str]:
    """Return the keys of the options that name the field at ``path``: those of its column, if it is in the ROW that the
    column's ARRAY or MAP holds.
    """
    if len(path) != 3:
        return []
    return [key for key, text in _naming_fields(options, path[0]) if path[-1] in _named(key, text)]


def with_field_renamed(options: Options, column: str, old: str, new: str) -> dict[str, str]:
    """Return ``options`` with the field ``old`` of the ROW in ``column`` called ``new`` (docs/semantics.md, Q19)."""
    naming = _naming_fields(options, column)
    return {**options, **{key: _rename_in_value(key, text, old, new) for key, text in naming}}


def _naming_fields(options: Options, column: str) -> Iterator[tuple[str, str]]:
    for key, text in options.items():
        if column in _columns_in_key(key) and _names_of(key) in _FIELDS:
            yield key, text


def _names_of(key: str) -> Names:
    """Return the kind of names in the option's value."""
    option = FIELD_OPTIONS.get(key.rsplit(".", 1)[-1]) if _columns_in_key(key) else find_option(key)
    return Names.NOTHING if option is None else option.names


def _columns_in_key(key: str) -> Sequence[str]:
    segments = key.split(".")
    if len(segments) != 3 or segments[0] != "fields":
        return ()
    return [name.strip() for name in segments[1].split(",")]


def _named(key: str, text: str) -> Sequence[str]:
    """Return the columns or fields that the value of such an option names."""
    return [name.strip() for name in text.split(",")] if _names_of(key) in _LISTS else (text.strip(),)


def _rename_in_value(key: str, text: str, old: str, new: str) -> str:
    if _names_of(key) in _LISTS:
        return _rename_in_list(text, old, new)
    return new if text.strip() == old else text


def _rename_in_list(text: str, old: str, new: str) -> str:
    return ",".join(new if name.strip() == old else name for name in text.split(","))
