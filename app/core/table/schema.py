"""A table's schema: columns with ids, keys and options, read from and written as Paimon's REST catalog's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import Any

from app.core.errors import About, ErrorCode, FaultCode, Invalid, Violation, escape_pointer
from app.core.table.options.entries import TABLE_OPTIONS, AbsentColumns
from app.core.table.options.parsed import TableOptions, parse_options
from app.core.types.datatype import DataType, highest_field_id, walk_types
from app.core.types.entry import Entry
from app.core.types.field_ids import with_unique_ids
from app.core.types.parser import TypeSyntaxError, is_text, parse_type, type_to_json
from app.core.types.values import Encode

RESERVED_NAMES = frozenset(
    {
        *("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "rowkind", "_kind"),
        "_tmp_metadata_row_index",  # Spark's reader of Parquet fills a column of this name with row numbers
    }
)
RESERVED_PREFIXES = ("_KEY_", "_kf_")


@dataclass(frozen=True)
class Column:
    """One column; ``id`` never changes and is its Parquet field id. ``default`` is the text of its
    DEFAULT.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None

    @property
    def nullable(self) -> bool:
        """Whether the column may hold null."""
        return self.type.nullable

    def to_json(self) -> dict[str, Any]:
        """Return the column as a Paimon data field."""
        field: dict[str, Any] = {"id": self.id, "name": self.name, "type": type_to_json(self.type)}
        if self.description is not None:
            field["description"] = self.description
        if self.default is not None:
            field["defaultValue"] = self.default
        return field


@dataclass(frozen=True)
class TableSchema:
    """Columns in declared order, key columns by name, options as given (Paimon's keys, values always text).

    ``remembers_removals`` is not declared: runs of earlier schemas may hold removals and retracts that later records
    must still meet, although the options accept none any more
    (``app.core.plan.merging.evolution.remembering``). Nor is ``epoch``, the number of earlier ALTERs of the table that
    changed the meaning of its state.
    """

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    comment: str | None = None
    remembers_removals: bool = False
    epoch: int = 0
    # By name what others have worked out of this very value; no part of it, and not handed to its copies.
    worked_out: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return MappingProxyType({column.name: column for column in self.columns})

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The primary-key columns in primary-key order."""
        return tuple(self.by_name[name] for name in self.primary_key)

    @cached_property
    def key_types(self) -> tuple[tuple[DataType, Entry, Encode], ...]:
        """The type, the entry of its kind and the JSON encoder of each key column, in primary-key order."""
        return tuple((column.type, column.type.entry, column.type.encoder) for column in self.key_columns)

    @cached_property
    def encoders(self) -> tuple[tuple[str, Encode], ...]:
        """The columns' names, in declared order, each with the function that writes its values as JSON."""
        return tuple((column.name, column.type.encoder) for column in self.columns)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns that are not in the primary key, in declared order."""
        key = frozenset(self.primary_key)
        return tuple(column for column in self.columns if column.name not in key)

    @cached_property
    def parsed(self) -> TableOptions:
        """The options as typed values, with the faults of those that could not be read."""
        return parse_options(self.options, self.by_name)

    @cached_property
    def absent_unchanged(self) -> bool:
        """Whether a column that a record does not name stays unchanged."""
        return self.parsed["record.absent-columns"] is AbsentColumns.UNCHANGED

    @cached_property
    def declared_names(self) -> tuple[str, ...]:
        """The names of columns and of the fields inside them, a column before its fields."""
        names: list[str] = []
        for column in self.columns:
            names.append(column.name)
            names += [field.name for inner in walk_types(column.type) for field in inner.fields]
        return tuple(names)

    @cached_property
    def highest_field_id(self) -> int:
        """The largest id of any column or nested field; a new column gets the next one."""
        return max((max(column.id, highest_field_id(column.type)) for column in self.columns), default=-1)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as Paimon's REST catalog writes it."""
        return {
            "fields": [column.to_json() for column in self.columns],
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_key),
            "options": dict(self.options),
            "comment": self.comment,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TableSchema:
        """Return the schema that ``body`` (Paimon's JSON) declares.

        Raise ``Invalid`` with every fault of the columns and keys at once. What options mean is
        checked by ``app.core.plan.merging.merge_plan.compile_plan``.
        """
        faults: list[Violation] = []
        options = _options(body.get("options"), faults)
        columns = _columns(body.get("fields"), faults)
        primary_key = _primary_key(body, options, faults)
        partition_keys = _names(body.get("partitionKeys"), "/partitionKeys", faults)
        columns = _with_key_nullability(columns, primary_key, options)
        faults += _key_violations(columns, primary_key, "/primaryKeys", "primary key")
        faults += _key_violations(columns, partition_keys, "/partitionKeys", "partition key")
        faults += _key_scope_violations(primary_key, partition_keys)
        faults += _text_faults(body, "", ("comment",))
        if faults:
            raise Invalid("the schema is not valid", code=ErrorCode.INVALID_SCHEMA, violations=faults)
        return cls(columns, primary_key, partition_keys, MappingProxyType(options), body.get("comment"))


def _options(raw: object, faults: list[Violation]) -> dict[str, str]:
    """Options as text; JSON numbers and booleans are written as Paimon spells them."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        faults.append(
            Violation(
                "/options",
                FaultCode.NOT_AN_OBJECT,
                "options must be an object",
                'send {"key": "text"}',
                about=About(option=""),
            )
        )
        return {}
    options: dict[str, str] = {}
    for key, value in raw.items():
        if isinstance(value, bool):
            options[str(key)] = "true" if value else "false"
        elif isinstance(value, (int, float, Decimal)) or is_text(value):
            options[str(key)] = str(value)
        else:
            pointer, message = f"/options/{escape_pointer(str(key))}", f"the value of option {key!r} is not text"
            about = About(option=str(key))
            faults.append(Violation(pointer, FaultCode.NOT_TEXT, message, "send it as a string", about=about))
    return options


def _columns(raw: object, faults: list[Violation]) -> tuple[Column, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not raw:
        faults.append(
            Violation("/fields", FaultCode.MISSING, "a table needs columns", 'send "fields": [{"name": …, "type": …}]')
        )
        return ()
    columns: list[Column] = []
    seen: set[str] = set()
    taken = {item["id"] for item in raw if isinstance(item, Mapping) and _is_id(item.get("id"))}
    free = count(max(taken, default=-1) + 1)
    for index, item in enumerate(raw):
        violations: list[Violation] = []
        column = _column(item, index, free, violations)
        name = item.get("name") if isinstance(item, Mapping) else None
        about = About(columns=(name,) if isinstance(name, str) else ())
        faults += [replace(fault, about=about) for fault in violations]
        if column is None:
            continue
        if column.name in seen:
            message = f"column {column.name!r} is declared twice"
            faults.append(
                Violation(f"/fields/{index}/name", FaultCode.DUPLICATE_COLUMN, message, "rename or remove one of them")
            )
            continue
        seen.add(column.name)
        columns.append(column)
    unique = with_unique_ids([(column.id, column.type) for column in columns])
    return tuple(replace(column, id=i, type=t) for column, (i, t) in zip(columns, unique, strict=True))


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**30


def _column(item: object, index: int, free: Iterator[int], faults: list[Violation]) -> Column | None:
    """Return the column that ``item`` declares; one without an id gets the next ``free`` one. None if it is none."""
    pointer = f"/fields/{index}"
    if not isinstance(item, Mapping):
        faults.append(
            Violation(pointer, FaultCode.NOT_AN_OBJECT, "a column is an object", 'send {"name": …, "type": …}')
        )
        return None
    name = item.get("name")
    if not is_text(name) or not name:
        faults.append(Violation(f"{pointer}/name", FaultCode.MISSING, "the column has no name", 'add "name"'))
        return None
    faults += _text_faults(item, pointer, ("description", "defaultValue"))
    if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES):
        faults.append(
            Violation(
                f"{pointer}/name",
                FaultCode.RESERVED_NAME,
                f"the column name {name!r} is reserved",
                "choose another name",
            )
        )
    try:
        data_type = parse_type(item.get("type"))
    except TypeSyntaxError as error:
        faults.append(Violation(f"{pointer}/type", error.code, f"column {name!r}: {error}", error.fix))
        return None
    raw_id = item.get("id")
    column_id: int = raw_id if isinstance(raw_id, int) and _is_id(raw_id) else next(free)
    default = item.get("defaultValue")
    return Column(column_id, name, data_type, item.get("description"), None if default is None else str(default))


def _text_faults(body: Mapping[str, Any], pointer: str, members: tuple[str, ...]) -> list[Violation]:
    """Members that must be text where they are given."""
    return [
        Violation(f"{pointer}/{member}", FaultCode.NOT_TEXT, f"{member} is not text", "send a string of valid Unicode")
        for member in members
        if body.get(member) is not None and not is_text(body[member])
    ]


def _names(raw: object, pointer: str, faults: list[Violation]) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not all(isinstance(name, str) for name in raw):
        faults.append(
            Violation(pointer, FaultCode.NOT_A_LIST, "a list of column names is expected", 'send ["column", …]')
        )
        return ()
    return tuple(raw)


def _primary_key(body: Mapping[str, Any], options: dict[str, str], faults: list[Violation]) -> tuple[str, ...]:
    """Return the primary key, declared as ``primaryKeys`` or by the option ``primary-key`` but not both."""
    declared = _names(body.get("primaryKeys"), "/primaryKeys", faults)
    option = options.pop("primary-key", None)  # the schema says it from here on
    if option is None:
        if not declared:
            fix = "declare primaryKeys: Keyfold serves rows by primary key"
            faults.append(Violation("/primaryKeys", FaultCode.MISSING_PRIMARY_KEY, "the table has no primary key", fix))
        return declared
    if declared:
        message = "the primary key is given both in primaryKeys and in the option primary-key"
        fix, about = "remove the option primary-key", About(option="primary-key")
        faults.append(Violation("/options/primary-key", FaultCode.PRIMARY_KEY_TWICE, message, fix, about=about))
        return declared
    named: tuple[str, ...] = TABLE_OPTIONS["primary-key"].parse(option)
    return named


def _with_key_nullability(
    columns: tuple[Column, ...], primary_key: tuple[str, ...], options: Mapping[str, str]
) -> tuple[Column, ...]:
    """Key columns become NOT NULL unless ``primary-key.nullable``."""
    nullable = TABLE_OPTIONS["primary-key.nullable"]
    try:
        if nullable.parse(options.get(nullable.key, "false")):
            return columns
    except ValueError:
        pass  # reported with the faults of all options
    return tuple(
        Column(c.id, c.name, c.type.with_nullable(False), c.description, c.default) if c.name in primary_key else c
        for c in columns
    )


def _key_violations(columns: tuple[Column, ...], names: tuple[str, ...], pointer: str, what: str) -> list[Violation]:
    faults: list[Violation] = []
    by_name = {column.name: column for column in columns}
    seen: set[str] = set()
    for index, name in enumerate(names):
        where = f"{pointer}/{index}"
        if name not in by_name:
            faults.append(
                Violation(
                    where, FaultCode.UNKNOWN_COLUMN, f"{what} column {name!r} does not exist", "name a declared column"
                )
            )
        elif not by_name[name].type.legal_key:
            message = f"{what} column {name!r} has type {by_name[name].type.sql}, which cannot be a key"
            faults.append(Violation(where, FaultCode.ILLEGAL_KEY_TYPE, message, "use a scalar column"))
        if name in seen:
            faults.append(
                Violation(where, FaultCode.DUPLICATE_COLUMN, f"{what} column {name!r} is named twice", "name it once")
            )
        seen.add(name)
    return faults


def _key_scope_violations(primary_key: tuple[str, ...], partition_keys: tuple[str, ...]) -> list[Violation]:
    return [
        Violation(
            f"/partitionKeys/{index}",
            FaultCode.PARTITION_KEY_OUTSIDE_PRIMARY_KEY,
            f"partition key column {name!r} is not in the primary key",
            f"add {name!r} to primaryKeys or drop it from partitionKeys",
        )
        for index, name in enumerate(partition_keys)
        if primary_key and name not in primary_key
    ]
