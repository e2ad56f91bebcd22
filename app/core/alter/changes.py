"""Changes of a table's schema: Paimon's change actions, applied in order, all or nothing.

A change is read from JSON to a frozen value that knows how it applies to a draft; an action is one entry of
``ACTIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.alter.actions import (
    AddColumn,
    Change,
    DropColumn,
    DropPrimaryKey,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnComment,
    UpdateColumnDefaultValue,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
)
from app.core.alter.draft import Draft, Move, Place
from app.core.alter.nested_fields import Path
from app.core.errors import FaultCode
from app.core.table.schema import TableSchema
from app.core.types.datatype import DataType
from app.core.types.kinds import Kind
from app.core.types.parser import TypeSyntaxError, parse_type

# Most changes of one request: each may rewrite every option.
MOST_CHANGES = 1000


class _Refused(Exception):
    """A member that cannot be read; ``at`` is where in it."""

    def __init__(self, code: FaultCode, message: str, fix: str, at: str = "") -> None:
        super().__init__(message)
        self.code, self.fix, self.at = code, fix, at


_MISSING = object()


def read_text(value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _Refused(FaultCode.NOT_TEXT, "a text is expected", "send a string that is not empty")
    return value


def read_text_or_null(value: object) -> str | None:
    """Return a text; null removes the present value."""
    if value is not None and not isinstance(value, str):
        raise _Refused(FaultCode.NOT_TEXT, "a text is expected", "send a string, or null to remove it")
    return value


def read_option_value(value: object) -> str:
    """Return an option's value as text, as at creation: JSON's numbers and booleans as Paimon spells them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise _Refused(FaultCode.NOT_TEXT, "the value of an option is text", "send a string")


def read_truth(value: object) -> bool:
    """Return ``value`` if it is a JSON boolean; refuse it otherwise."""
    if not isinstance(value, bool):
        raise _Refused(FaultCode.NOT_BOOLEAN, "true or false is expected", "send true or false")
    return value


def read_path(value: object) -> Path:
    """Return the path of a column or of a field inside it. Raise ``_Refused`` if it is not a list of names."""
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise _Refused(
            FaultCode.NOT_A_LIST, "a list with the column's name is expected", 'send ["column"], or ["column", …]'
        )
    return tuple(value)


def read_type(value: object) -> DataType:
    """Return a type, as text or as an object."""
    try:
        return parse_type(value)
    except TypeSyntaxError as error:
        raise _Refused(error.code, str(error), error.fix) from error


def read_move(value: object) -> Move:
    """Return the move that ``value`` spells in JSON. Raise ``_Refused`` with the member at fault."""
    if not isinstance(value, Mapping):
        raise _Refused(FaultCode.NOT_AN_OBJECT, "a move is an object", 'send {"type": "FIRST"}, for instance')
    place = value.get("type")
    if not isinstance(place, str) or place.upper() not in Place.__members__:
        raise _Refused(FaultCode.UNKNOWN_MOVE, f"unknown move {place!r}", f"write one of: {', '.join(Place)}", "/type")
    names = {}
    for member in ("fieldName", "referenceFieldName"):
        try:
            names[member] = read_text_or_null(value.get(member))
        except _Refused as refused:
            raise _Refused(refused.code, str(refused), refused.fix, f"/{member}") from refused
    return Move(Place(place.upper()), names["fieldName"], names["referenceFieldName"])


def read_move_or_null(value: object) -> Move | None:
    """Return a column's new place, if it has one."""
    return None if value is None else read_move(value)


@dataclass(frozen=True)
class Member:
    """One member of a change: the reader of its JSON, its default, and the value to continue with if it is wrong."""

    name: str
    read: Callable[[object], Any]
    absent: object = _MISSING
    instead: object = _MISSING

    @property
    def needed(self) -> bool:
        """Whether the change must have it."""
        return self.absent is _MISSING


@dataclass(frozen=True)
class Action:
    """One kind of change: its class, its members in the order of the class's fields, and its meaning."""

    change: Callable[..., Change]
    members: tuple[Member, ...]
    meaning: str


_COLUMN = Member("fieldNames", read_path)
_KEEPS_NULLS = Member("keepNullability", read_truth, absent=False, instead=False)
# Paimon's REST catalog; the bodies that OpenAPI shows are made of this table (app.api.routes.tables.schema_changes).
ACTIONS: Mapping[str, Action] = {
    "setOption": Action(
        SetOption, (Member("key", read_text), Member("value", read_option_value)), "Sets a table option."
    ),
    "removeOption": Action(
        RemoveOption, (Member("key", read_text),), "Removes a table option; one that is not set stays so."
    ),
    "updateComment": Action(
        UpdateComment,
        (Member("comment", read_text_or_null, absent=None),),
        "Sets the table's comment; null removes it.",
    ),
    "addColumn": Action(
        AddColumn,
        (
            _COLUMN,
            Member("dataType", read_type, instead=DataType(Kind.STRING)),
            Member("comment", read_text_or_null, absent=None, instead=None),
            Member("move", read_move_or_null, absent=None, instead=None),
        ),
        "Adds a nullable column, last or where `move` says. In every change a path of several names leads into a "
        "column: a ROW by the names of its fields, an ARRAY by `element`, the values of a MAP by `value`.",
    ),
    "renameColumn": Action(
        RenameColumn,
        (_COLUMN, Member("newName", read_text)),
        "Renames a column or nested field, and the options that name it along with it.",
    ),
    "dropColumn": Action(DropColumn, (_COLUMN,), "Drops a column or nested field that no key and no option names."),
    "updateColumnType": Action(
        UpdateColumnType,
        (_COLUMN, Member("newDataType", read_type), _KEEPS_NULLS),
        "Gives a column, or what its path leads to, a wider type.",
    ),
    "updateColumnNullability": Action(
        UpdateColumnNullability,
        (_COLUMN, Member("newNullability", read_truth)),
        "Lets a column, or what its path leads to, hold null: `newNullability` true.",
    ),
    "updateColumnComment": Action(
        UpdateColumnComment,
        (_COLUMN, Member("newComment", read_text_or_null, absent=None)),
        "Sets the description of a column or nested field; null removes it.",
    ),
    "updateColumnDefaultValue": Action(
        UpdateColumnDefaultValue,
        (_COLUMN, Member("newDefaultValue", read_text_or_null, absent=None)),
        "Sets a column's default; null removes it.",
    ),
    "updateColumnPosition": Action(
        UpdateColumnPosition, (Member("move", read_move),), "Moves a column; `move` names it."
    ),
    "dropPrimaryKey": Action(DropPrimaryKey, (), "Always refused: Keyfold's tables need a key."),
}


def _read(raw: object, draft: Draft) -> Change | None:
    """Return the change that ``raw`` describes; None if it cannot even be guessed. Faults are added to ``draft``."""
    if not isinstance(raw, Mapping):
        draft.refuse("", FaultCode.NOT_AN_OBJECT, "a change is an object", 'send {"action": "setOption", …}')
        return None
    action = raw.get("action")
    if not isinstance(action, str) or action not in ACTIONS:
        draft.refuse(
            "/action", FaultCode.UNKNOWN_ACTION, f"unknown action {action!r}", f"write one of: {', '.join(ACTIONS)}"
        )
        return None
    values = [_read_member(raw, member, action, draft) for member in ACTIONS[action].members]
    return None if any(value is _MISSING for value in values) else ACTIONS[action].change(*values)


def _read_member(raw: Mapping[str, Any], member: Member, action: str, draft: Draft) -> object:
    if member.name not in raw:
        if member.needed:
            draft.refuse(f"/{member.name}", FaultCode.MISSING, f"{action} needs {member.name}", f'add "{member.name}"')
            return member.instead
        return member.absent
    try:
        return member.read(raw[member.name])
    except _Refused as refused:
        message = f"{action}: {refused}"
        draft.refuse(f"/{member.name}{refused.at}", refused.code, message, refused.fix)
        return member.instead


def alter_schema(
    schema: TableSchema, changes: Sequence[object], *, highest_id: int, has_rows: bool, deepest_type: int
) -> TableSchema:
    """Return ``schema`` after all ``changes`` (Paimon's JSON), in their order.

    ``highest_id`` is the largest id of any column or field that the table ever had; ``has_rows`` whether a record was
    ever posted; ``deepest_type`` how many types of a new column may stand inside each other. Raise ``Invalid`` with
    every fault of the request; ``AlreadyExists`` of a COLUMN where nothing else is wrong.
    """
    draft = Draft(schema, highest_id, deepest_type)
    if len(changes) > MOST_CHANGES:
        message = f"{len(changes)} changes are too many"
        draft.at = "/changes"
        draft.refuse("", FaultCode.TOO_MANY_CHANGES, message, f"send at most {MOST_CHANGES} in a request")
        changes = ()
    for number, raw in enumerate(changes):
        draft.at = f"/changes/{number}"
        change = _read(raw, draft)
        if change is not None:
            change.apply(draft)
    return draft.finish(has_rows)
