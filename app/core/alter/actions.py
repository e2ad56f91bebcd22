"""Single changes of a table's schema: frozen values that know how they apply to a draft."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from app.core.alter.draft import Draft, Move, Place, type_depth
from app.core.alter.nested_fields import Path, PathFault, added_field, described_field, dotted
from app.core.errors import FaultCode
from app.core.types.datatype import DataType, Field

ADD_ANOTHER = "add a new column of that type and post its values"


class Change(Protocol):
    """One change of a schema."""

    def apply(self, draft: Draft) -> None:
        """Change ``draft``, or note there why it cannot be changed so."""


@dataclass(frozen=True)
class SetOption:
    """Sets a table option."""

    key: str
    value: str

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        if self.key == "path":
            message = "Keyfold chooses the path of its tables"
            draft.refuse("/key", FaultCode.PATH_NOT_ALLOWED, message, "leave out the option path")
        else:
            draft.set_option(self.key, self.value)


@dataclass(frozen=True)
class RemoveOption:
    """Removes a table option; one that is not set stays so."""

    key: str

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        draft.set_option(self.key, None)


@dataclass(frozen=True)
class UpdateComment:
    """Sets the table's comment; None removes it."""

    comment: str | None

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        draft.comment = self.comment


@dataclass(frozen=True)
class AddColumn:
    """Adds a nullable column, or a field inside one: old rows hold null in it."""

    path: Path
    data_type: DataType
    comment: str | None
    move: Move | None

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        name = self.path[-1]
        if self.move is not None and self.move.column not in (None, name):
            message = f"the move is of {self.move.column!r}, the new column is {name!r}"
            draft.refuse("/move/fieldName", FaultCode.ILLEGAL_MOVE, message, f"send {name!r} here")
        if not self.data_type.nullable:
            message = f"the new column {name!r} is NOT NULL, and the table's rows have no value for it"
            draft.refuse("/dataType", FaultCode.NOT_NULL_COLUMN, message, f"write {self.data_type.base_sql}")
        # A column at fault is there for the changes that follow, which are not to blame.
        if len(self.path) > 1:
            self._add_inside(draft)
            return
        if type_depth(self.data_type) > draft.deepest_type:
            message = f"the type of column {name!r} is nested more than {draft.deepest_type} levels deep"
            draft.refuse("/dataType", FaultCode.NESTED_TOO_DEEPLY, message, "flatten the type")
        if draft.is_new_name(name, "/fieldNames/0"):
            draft.add(name, self.data_type, self.comment, self.move)

    def _add_inside(self, draft: Draft) -> None:
        new = draft.numbered(self.data_type)
        if new is None:
            return
        move = self.move or Move(Place.LAST)
        field = Field(new[0], self.path[-1], new[1], self.comment)
        edit = added_field(self.path, field, lambda names: draft.target(names, field.name, move))
        draft.edit_inside(self.path[:-1], edit)


@dataclass(frozen=True)
class RenameColumn:
    """Renames a column or a field inside one, and the options that name it along with it."""

    path: Path
    name: str

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        if len(self.path) > 1:
            draft.rename_inside(self.path, self.name)
            return
        column = self.path[0]
        place = draft.find(column)
        if place is None or self.name == column:
            return
        if column in draft.partition_keys:
            message = f"partition key column {column!r} cannot be renamed"
            draft.refuse("/fieldNames/0", FaultCode.PARTITION_COLUMN, message, "keep its name, or create a new table")
        elif draft.is_new_name(self.name, "/newName"):
            draft.rename(place, self.name)


@dataclass(frozen=True)
class DropColumn:
    """Drops a column, or a field inside one, that no key and no option names; its id never comes again."""

    path: Path

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        if len(self.path) > 1:
            draft.drop_inside(self.path)
            return
        column = self.path[0]
        place = draft.find(column)
        if place is None:
            return
        if column in (*draft.primary_key, *draft.partition_keys):
            message = f"key column {column!r} cannot be dropped"
            draft.refuse("/fieldNames/0", FaultCode.KEY_COLUMN, message, "create a new table with another key")
        else:
            draft.drop(place)


@dataclass(frozen=True)
class UpdateColumnType:
    """Gives a column, or a type inside one, a type that holds every value of the old one (``Entry.widens``)."""

    path: Path
    data_type: DataType
    keep_nullability: bool

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        key = self.path == self.path[:1] and self.path[0] in draft.primary_key
        draft.edit_inside(self.path, lambda old: self._changed(old, key), "/newDataType")

    def _changed(self, old: DataType, key: bool) -> DataType:
        same = self.data_type.base_sql == old.base_sql
        if not same and not holds(old, self.data_type, key):
            raise self._refused(old, key)
        # Types that are spelled alike may differ in the client's ids of ROW fields: the table's stay.
        new_type = old if same else self.data_type
        # What a key may hold is said by the key, not by the type.
        nullable = old.nullable if key or self.keep_nullability else self.data_type.nullable
        return _with_nullability(new_type, old, nullable, self.path, False, "/newDataType")

    def _refused(self, old: DataType, key: bool) -> PathFault:
        limit = "only the length of a key column's text or bytes may grow" if key else "it would not hold every value"
        fix = ADD_ANOTHER
        if old.kind == self.data_type.kind and old.nested:
            limit, fix = "its parts change one by one", f"send the path of what changes, {[*self.path, '…']}"
        message = f"column {dotted(self.path)!r} cannot go from {old.base_sql} to {self.data_type.base_sql}: {limit}"
        return PathFault("/newDataType", FaultCode.ILLEGAL_TYPE_CHANGE, message, fix)


@dataclass(frozen=True)
class UpdateColumnNullability:
    """Lets a column, or a type inside one, hold null."""

    path: Path
    nullable: bool

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        key = len(self.path) == 1 and self.path[0] in draft.primary_key
        member = "/newNullability"
        draft.edit_inside(
            self.path, lambda old: _with_nullability(old, old, self.nullable, self.path, key, member), member
        )


@dataclass(frozen=True)
class UpdateColumnComment:
    """Sets the description of a column or a field; None removes it."""

    path: Path
    comment: str | None

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        if len(self.path) > 1:
            draft.edit_inside(self.path[:-1], described_field(self.path, self.comment))
            return
        place = draft.find(self.path[0])
        if place is not None:
            draft.columns[place] = replace(draft.columns[place], description=self.comment)


@dataclass(frozen=True)
class UpdateColumnDefaultValue:
    """Sets a column's default; None removes it."""

    path: Path
    default: str | None

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        if len(self.path) > 1:
            message = f"{dotted(self.path)!r} is inside a column, and only columns have defaults"
            draft.refuse("/fieldNames", FaultCode.NESTED_COLUMN, message, f"send {[self.path[0]]}, or no default")
            return
        place = draft.find(self.path[0])
        if place is not None:
            draft.put(place, replace(draft.columns[place], default=self.default), "/newDefaultValue")


@dataclass(frozen=True)
class UpdateColumnPosition:
    """Moves a column."""

    move: Move

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        if self.move.column is None:
            draft.refuse("/move/fieldName", FaultCode.MISSING, "the move names no column", 'add "fieldName"')
            return
        place = draft.find(self.move.column, "/move/fieldName")
        if place is not None:
            draft.move(place, self.move)


@dataclass(frozen=True)
class DropPrimaryKey:
    """Refused: a table is looked up by its key."""

    def apply(self, draft: Draft) -> None:
        """Apply the change to ``draft``."""
        message = "the primary key cannot be dropped: Keyfold's rows are assembled and served by it"
        draft.refuse("/action", FaultCode.PRIMARY_KEY_NEEDED, message, "keep the key, or drop the table")


def holds(old: DataType, new: DataType, key: bool) -> bool:
    """Return whether the new type holds every value of the old one, as files of either type are read."""
    fits = old.entry.widens.get(new.kind)
    return fits is not None and (old.entry.key_widens or not key) and fits(old, new)


def _with_nullability(new: DataType, old: DataType, nullable: bool, path: Path, key: bool, member: str) -> DataType:
    """Return ``new`` as nullable as asked for. Raise ``PathFault`` if what ``path`` leads to, of type ``old``,
    cannot be so.
    """
    if nullable == old.nullable or (nullable and not key):
        return new.with_nullable(nullable)
    if not nullable:
        message = f"column {dotted(path)!r} cannot become NOT NULL: rows may hold null in it"
        raise PathFault(
            member, FaultCode.NULL_TO_NOT_NULL, message, "keep it nullable, or add a default for what is shown"
        )
    message = f"key column {path[0]!r} cannot become nullable"
    raise PathFault(member, FaultCode.KEY_COLUMN, message, "create a new table with primary-key.nullable = true")
