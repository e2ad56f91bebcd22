"""A schema while changes are applied to it: its present state, and the change that caused each fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from app.core.alter.nested_fields import Edit, Path, PathFault, dotted, dropped_field, edited, renamed_field
from app.core.alter.option_changes import (
    immutable_violations,
    options_naming,
    options_naming_field,
    rename_in_key,
    renamed_options,
    with_field_renamed,
)
from app.core.errors import About, AlreadyExists, ErrorCode, FaultCode, Invalid, KeyfoldError, Violation, first_of
from app.core.hints import some_of
from app.core.plan.merging.evolution import remembering
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.options.entries import TABLE_OPTIONS
from app.core.table.options.parsed import misspelt_options
from app.core.table.schema import RESERVED_NAMES, RESERVED_PREFIXES, Column, TableSchema
from app.core.types.datatype import DataType, highest_field_id
from app.core.types.field_ids import with_unique_ids
from app.core.types.kinds import Kind

LARGEST_FIELD_ID = 2**31 - 1  # Parquet's field ids are 32 bits wide


class Place(StrEnum):
    """Where a column moves."""

    FIRST = "FIRST"
    AFTER = "AFTER"
    BEFORE = "BEFORE"
    LAST = "LAST"


@dataclass(frozen=True)
class Move:
    """A column's new place; ``reference`` is the column that AFTER and BEFORE are relative to."""

    place: Place
    column: str | None = None
    reference: str | None = None


class Draft:
    """The schema while changes are applied to it, with everything that is wrong with them.

    ``at`` is the pointer of the change that is being applied; ``highest_id`` the largest id that the table ever used.
    """

    def __init__(self, schema: TableSchema, highest_id: int, deepest_type: int) -> None:
        self.columns = list(schema.columns)
        self.primary_key = schema.primary_key
        self.partition_keys = schema.partition_keys
        self.options = dict(schema.options)
        self.comment = schema.comment
        self.deepest_type = deepest_type
        self.at = ""
        self.faults: list[Violation] = []
        self._stored = schema
        self._before = schema  # with key and options calling the columns as they are called now
        self._highest_id = highest_id
        # The pointer of the last change of ("option", key) or ("column", name), in the order of these changes.
        self._touched: dict[tuple[str, str], str] = {}
        self._dangling: dict[str, tuple[str, str]] = {}  # option that names a dropped column: pointer, column

    def refuse(self, member: str, code: FaultCode, message: str, fix: str, column: str | None = None) -> None:
        """Note a fault of the current change's ``member``."""
        self.faults.append(Violation(f"{self.at}{member}", code, message, fix, column=column))

    def find(self, name: str, member: str = "/fieldNames/0") -> int | None:
        """Return the place of the column. If it does not exist, note a fault of ``member`` and return None."""
        for place, column in enumerate(self.columns):
            if column.name == name:
                return place
        known = some_of([column.name for column in self.columns])
        self.refuse(member, FaultCode.UNKNOWN_COLUMN, f"column {name!r} does not exist", f"columns: {known}", name)
        return None

    def is_new_name(self, name: str, member: str) -> bool:
        """Return whether a column may get this name; notes the fault if not."""
        if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES):
            self.refuse(member, FaultCode.RESERVED_NAME, f"the column name {name!r} is reserved", "choose another name")
            return False
        if any(column.name == name for column in self.columns):
            message = f"column {name!r} exists already"
            self.refuse(member, FaultCode.DUPLICATE_COLUMN, message, "choose another name", name)
            return False
        return True

    def put(self, place: int, column: Column, member: str) -> None:
        """Replace the column at ``place``; faults that follow from it point at ``member`` of the change."""
        self.columns[place] = column
        self._touch("column", column.name, member)

    def _touch(self, kind: str, name: str, member: str) -> None:
        """Note that the current change's ``member`` is the last one to touch the option or column."""
        self._touched.pop((kind, name), None)  # in the order of the last changes
        self._touched[kind, name] = f"{self.at}{member}"

    def numbered(self, data_type: DataType) -> tuple[int, DataType] | None:
        """Return the id of a new column or field of that type, and the type, with ids that nothing in the table ever
        had; None, and a fault, if there are no more.
        """
        top = self._highest_id + 1
        # The first pair stands for all ids that were ever used: the new ones begin after it.
        _, (_, numbered) = with_unique_ids([(self._highest_id, DataType(Kind.INT)), (top, _without_ids(data_type))])
        self._highest_id = max(top, highest_field_id(numbered))
        if self._highest_id <= LARGEST_FIELD_ID:
            return top, numbered
        message = f"the next column id, {self._highest_id}, does not fit into a Parquet file"
        self.refuse("", FaultCode.NO_FREE_ID, message, "create a new table with smaller column ids")
        return None

    def add(self, name: str, data_type: DataType, description: str | None, move: Move | None) -> None:
        """Add a new column, last or where ``move`` says."""
        new = self.numbered(data_type)
        if new is None:
            return
        number, numbered = new
        self.columns.append(Column(number, name, numbered, description))
        self._touch("column", name, "/fieldNames/0")
        if move is not None:
            self.move(len(self.columns) - 1, move)

    def move(self, place: int, move: Move) -> None:
        """Move the column at ``place``."""
        column = self.columns[place]
        target = self.target([column.name for column in self.columns], column.name, move)
        if target is not None:
            self.columns.pop(place)
            self.columns.insert(target - (place < target), column)

    def target(self, names: Sequence[str], name: str, move: Move) -> int | None:
        """Return the place among ``names`` before which ``move`` puts ``name``; None, and a fault, if the reference
        does not exist or is ``name`` itself.
        """
        member = "/move/referenceFieldName"
        if move.place in (Place.FIRST, Place.LAST):
            return 0 if move.place is Place.FIRST else len(names)
        if move.reference is None:
            self.refuse(member, FaultCode.MISSING, f"{move.place} needs another column", 'add "referenceFieldName"')
        elif move.reference == name:
            message = f"column {name!r} cannot move {move.place} itself"
            self.refuse(member, FaultCode.ILLEGAL_MOVE, message, "name another column")
        elif move.reference not in names:
            message = f"column {move.reference!r} does not exist"
            self.refuse(member, FaultCode.UNKNOWN_COLUMN, message, f"columns: {some_of(names)}", move.reference)
        else:
            return names.index(move.reference) + (move.place is Place.AFTER)
        return None

    def edit_inside(self, path: Path, edit: Edit, member: str = "/fieldNames/0") -> bool:
        """Change the type inside a column that ``path`` leads to; whether that went, else the fault is noted."""
        place = self.find(path[0])
        if place is None:
            return False
        column = self.columns[place]
        try:
            changed = replace(column, type=edited(column.type, path, edit))
        except PathFault as fault:
            self.refuse(fault.member, fault.code, str(fault), fault.fix, fault.column)
            return False
        if type_depth(changed.type) > self.deepest_type:
            message = f"the type of column {column.name!r} would be nested more than {self.deepest_type} levels deep"
            self.refuse("/dataType", FaultCode.NESTED_TOO_DEEPLY, message, "flatten the type")
            return False
        self.put(place, changed, member)
        return True

    def rename_inside(self, path: Path, new: str) -> None:
        """Rename a field, and rewrite every option of its column that names it (docs/semantics.md, Q19)."""
        column, old = path[0], path[-1]
        naming = options_naming_field(self.options, path)
        if naming and (new != new.strip() or "," in new):
            message = f"options name field {dotted(path)!r}, and cannot name {new!r}"
            self.refuse("/newName", FaultCode.ILLEGAL_NAME, message, "choose a name without comma and outer blanks")
        elif self.edit_inside(path[:-1], renamed_field(path, new)) and naming:
            self.options = with_field_renamed(self.options, column, old, new)
            options = with_field_renamed(self._before.options, column, old, new)
            self._before = replace(self._before, options=options)

    def drop_inside(self, path: Path) -> None:
        """Drop a field; options that name it must be set again or removed by this request, as for a column."""
        naming = options_naming_field(self.options, path)
        if self.edit_inside(path[:-1], dropped_field(path)):
            self._dangling |= dict.fromkeys(naming, (self.at, dotted(path)))

    def rename(self, place: int, new: str) -> None:
        """Rename a column, and rewrite every option that names it (docs/semantics.md, Q19)."""
        old = self.columns[place].name
        if options_naming(self.options, old) and (new != new.strip() or "," in new or "." in new):
            message = f"options name column {old!r}, and cannot name {new!r}"
            self.refuse(
                "/newName", FaultCode.ILLEGAL_NAME, message, "choose a name without comma, dot and outer blanks"
            )
            return
        self._touched = {
            (kind, (new if name == old else name) if kind == "column" else rename_in_key(name, old, new)): pointer
            for (kind, name), pointer in self._touched.items()
        }
        self._dangling = {rename_in_key(key, old, new): drop for key, drop in self._dangling.items()}
        self.options = renamed_options(self.options, old, new)
        self.primary_key = _renamed(self.primary_key, old, new)
        before = self._before
        options = renamed_options(before.options, old, new)
        self._before = replace(before, primary_key=_renamed(before.primary_key, old, new), options=options)
        self.columns[place] = replace(self.columns[place], name=new)

    def drop(self, place: int) -> None:
        """Drop a column; options that name it must be set again or removed by this request."""
        name = self.columns.pop(place).name
        self._dangling |= dict.fromkeys(options_naming(self.options, name), (self.at, name))

    def set_option(self, key: str, text: str | None) -> None:
        """Set the option, or remove it."""
        self._dangling.pop(key, None)
        self._touch("option", key, "/key" if text is None else "/value")
        if key == "primary-key" and text is not None:
            self.primary_key = TABLE_OPTIONS["primary-key"].parse(text)  # the schema says it, as at creation
        elif text is None:
            self.options.pop(key, None)
        else:
            self.options[key] = text

    def finish(self, has_rows: bool) -> TableSchema:
        """Return the schema that the changes came to.

        Raise ``Invalid`` or ``AlreadyExists`` with every fault.
        """
        of_changes = [*self.faults]
        for key, (pointer, column) in self._dangling.items():
            message = f"column {column!r} cannot be dropped: option {key} names it"
            of_changes.append(
                Violation(pointer, FaultCode.COLUMN_IN_USE, message, f"remove or change the option {key} as well")
            )
        options = MappingProxyType(self.options)
        after = TableSchema(tuple(self.columns), self.primary_key, self.partition_keys, options, self.comment)
        after, violations = (after, list(after.parsed.faults)) if of_changes else _checked(after)
        touched = [name for kind, name in self._touched if kind == "option" and name in self.options]
        violations += misspelt_options(touched)
        faults = [fault for fault in violations if fault.about.option not in self._dangling]
        if has_rows:
            faults += immutable_violations(replace(self._before, columns=after.columns), after)
        if of_changes or faults:
            raise _refusal(of_changes, [replace(fault, pointer=self._culprit(fault.about)) for fault in faults])
        return remembering(self._stored, after) if has_rows else after

    def _culprit(self, about: About) -> str:
        """Return the place of the change that brought about a fault of the schema."""
        named = [("column", name) for name in about.columns]
        if about == About():  # of a key
            named = [("option", "primary-key")]
        elif ("option", about.option) in self._touched:
            named = [("option", about.option or "")]
        # Otherwise it contradicts another option: the last change of an option stands for it.
        candidates = [pointer for touched, pointer in self._touched.items() if touched in named]
        candidates = candidates or [pointer for (kind, _), pointer in self._touched.items() if kind == "option"]
        return candidates[-1] if candidates else self.at


def type_depth(data_type: DataType) -> int:
    """Return how many types stand inside each other."""
    return 1 + max((type_depth(inner) for inner in data_type.nested), default=0)


def _renamed(key: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if name == old else name for name in key)


def _without_ids(data_type: DataType) -> DataType:
    """Return the type with no id in it: clients number the fields of a new ROW by themselves."""
    return replace(
        data_type,
        key=None if data_type.key is None else _without_ids(data_type.key),
        element=None if data_type.element is None else _without_ids(data_type.element),
        fields=tuple(replace(field, id=-1, type=_without_ids(field.type)) for field in data_type.fields),
    )


def _checked(schema: TableSchema) -> tuple[TableSchema, list[Violation]]:
    """Return ``schema`` as the catalog will read it again, and what is wrong with its keys and options."""
    try:
        read = TableSchema.from_json(schema.to_json())
        compile_plan(read)
    except Invalid as invalid:
        return schema, list(invalid.violations)
    return read, []


def _refusal(of_changes: Sequence[Violation], of_schema: Sequence[Violation]) -> KeyfoldError:
    """Return one error for all faults.

    Paimon's clients expect 409 for a column that exists already; if anything else is wrong, too, the request is plainly
    invalid. A missing column is no 404: pypaimon reads that as a missing table, which it ignores on request.
    """
    faults = [*of_changes, *of_schema]
    message = f"the table cannot be altered: {first_of(faults)}"
    codes = {fault.code for fault in of_changes} if not of_schema else set()
    of_column = _COLUMN_ERRORS.get(codes.pop()) if len(codes) == 1 else None
    if of_column is None:
        code = ErrorCode.INVALID_SCHEMA if of_changes else ErrorCode.INVALID_OPTIONS
        return Invalid(message, code=code, violations=faults)
    kind, code = of_column
    return kind(
        message,
        code=code,
        violations=faults,
        resource_type="COLUMN",
        resource_name=faults[0].column,
    )


_COLUMN_ERRORS: Mapping[FaultCode, tuple[type[KeyfoldError], ErrorCode]] = {
    FaultCode.UNKNOWN_COLUMN: (Invalid, ErrorCode.COLUMN_NOT_FOUND),
    FaultCode.DUPLICATE_COLUMN: (AlreadyExists, ErrorCode.COLUMN_ALREADY_EXISTS),
}
