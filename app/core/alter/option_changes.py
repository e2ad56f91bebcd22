"""Options of a table that exists: which may change once it has rows, and what a renamed column does to them
(merge-semantics §6.6, §6.7).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.core.errors import FaultCode, Violation
from app.core.table.options import FALLBACK_KEYS, TABLE_OPTIONS, TableOptions, option_violation, parse_options
from app.core.table.schema import TableSchema

Options = Mapping[str, str]

_NEW_TABLE = "create a new table with the option and post the records there"
# Options that say what the stored rows mean: a change would give rows that no history explains (§6.6).
IMMUTABLE: Mapping[str, str] = {
    "merge-engine": _NEW_TABLE,
    "rowkind.field": _NEW_TABLE,
    "aggregation.remove-record-on-delete": _NEW_TABLE,
    "partial-update.remove-record-on-delete": _NEW_TABLE,
    "partial-update.remove-record-on-sequence-group": _NEW_TABLE,
    "sequence.snapshot-ordering": _NEW_TABLE,
    "primary-key": "create a new table with the other key and post the records there",
    "primary-key.nullable": _NEW_TABLE,
    "bucket-key": "leave it as it is: Keyfold lays out its files without it",
    "partition": _NEW_TABLE,
    "force-lookup": _NEW_TABLE,
}
# Records that were dropped are gone and those that were kept stay: such an option can be turned on, never off (§6.6).
ONLY_TURNED_ON = ("ignore-delete", "ignore-update-before")

# Options whose value names columns: one name, or a list of names (§10 Q19). All others name none.
_NAMES_COLUMN = ("rowkind.field",)
_NAMES_COLUMNS = (
    "sequence.field",
    "partial-update.remove-record-on-sequence-group",
    "bucket-key",
    "primary-key",
    "partition",
    "changelog-producer.row-deduplicate-ignore-fields",
)
_FIELD_NAMES_COLUMNS = ("sequence-group",)
# Options of a column that name fields of the ROW in its ARRAY or MAP.
_NAMES_FIELDS = ("nested-key", "nested-sequence-field", "ts-field")


def immutable_violations(before: TableSchema, after: TableSchema) -> list[Violation]:
    """Every option that a table with rows cannot change as ``after`` does (§6.6), compared by meaning.

    To set an option to its default, or to spell a value differently, is no change.
    """
    old, new = parse_options(before)[0], parse_options(after)[0]
    return [*_changed(before, after, old, new), *_turned_off(before, old, new)]


def _changed(before: TableSchema, after: TableSchema, old: TableOptions, new: TableOptions) -> Iterator[Violation]:
    if before.primary_key != after.primary_key:
        yield _immutable("primary-key")
    for key in IMMUTABLE:
        if _meaning(before, old, key) != _meaning(after, new, key):
            yield _immutable(key)


def _immutable(key: str) -> Violation:
    message = f"option {key} cannot change once records were posted: stored rows were folded under it"
    return option_violation(key, FaultCode.IMMUTABLE_OPTION, message, IMMUTABLE[key])


def _turned_off(before: TableSchema, old: TableOptions, new: TableOptions) -> Iterator[Violation]:
    for key in ONLY_TURNED_ON:
        if old[key] and not new[key]:
            spelled = next(k for k in (key, *FALLBACK_KEYS) if FALLBACK_KEYS.get(k, k) == key and k in before.options)
            message = f"option {key} cannot be turned off or removed: the records that it dropped are gone"
            yield option_violation(spelled, FaultCode.IMMUTABLE_OPTION, message, f"keep {spelled} = true")


def _meaning(schema: TableSchema, options: TableOptions, key: str) -> object:
    """The option's value as the table takes it; the text of one that Keyfold does not know."""
    return options[key] if key in TABLE_OPTIONS else schema.options.get(key)


def rename_in_key(key: str, old: str, new: str) -> str:
    """The option key with the column ``old`` called ``new``: ``fields.<columns>.<suffix>`` names columns (§6.2.5)."""
    segments = key.split(".")
    if len(segments) != 3 or segments[0] != "fields":
        return key
    return ".".join((segments[0], _rename_in_list(segments[1], old, new), segments[2]))


def rename_in_value(key: str, text: str, old: str, new: str) -> str:
    """The value of the option ``key`` with the column ``old`` called ``new``."""
    if key in _NAMES_COLUMN:
        return new if text.strip() == old else text
    return _rename_in_list(text, old, new) if _lists_columns(key) else text


def renamed_options(options: Options, old: str, new: str) -> dict[str, str]:
    """``options`` with every key and value that names the column ``old`` rewritten (§10 Q19)."""
    return {rename_in_key(key, old, new): rename_in_value(key, text, old, new) for key, text in options.items()}


def options_naming(options: Options, column: str) -> list[str]:
    """The keys of all options that name the column, in their key or in their value."""
    return [key for key, text in options.items() if column in _columns_in_key(key) or column in _columns_in(key, text)]


def _columns_in(key: str, text: str) -> Sequence[str]:
    if key in _NAMES_COLUMN:
        return (text.strip(),)
    return [name.strip() for name in text.split(",")] if _lists_columns(key) else ()


def _columns_in_key(key: str) -> Sequence[str]:
    segments = key.split(".")
    if len(segments) != 3 or segments[0] != "fields":
        return ()
    return [name.strip() for name in segments[1].split(",")]


def _lists_columns(key: str) -> bool:
    return key in _NAMES_COLUMNS or (bool(_columns_in_key(key)) and key.rsplit(".", 1)[-1] in _FIELD_NAMES_COLUMNS)


def _rename_in_list(text: str, old: str, new: str) -> str:
    return ",".join(new if name.strip() == old else name for name in text.split(","))


def options_naming_field(options: Options, path: Sequence[str]) -> list[str]:
    """The keys of the options that name the field at ``path``: those of its column, if it is in the ROW that the
    column's ARRAY or MAP holds.
    """
    if len(path) != 3:
        return []
    return [key for key, text in _naming_fields(options, path[0]) if path[-1] in (n.strip() for n in text.split(","))]


def with_field_renamed(options: Options, column: str, old: str, new: str) -> dict[str, str]:
    """``options`` with the field ``old`` of the ROW in ``column`` called ``new`` (§10 Q19)."""
    return {**options, **{key: _rename_in_list(text, old, new) for key, text in _naming_fields(options, column)}}


def _naming_fields(options: Options, column: str) -> Iterator[tuple[str, str]]:
    for key, text in options.items():
        if column in _columns_in_key(key) and key.rsplit(".", 1)[-1] in _NAMES_FIELDS:
            yield key, text
