"""Places inside a column's type, named by a path as Paimon's clients name them, and changes there.

A path begins with the column. A field of a ROW is named by its name; the element of an ARRAY and the value of a MAP
have no name and are called ``element`` and ``value`` (Paimon takes either word for either).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app.core.errors import FaultCode
from app.core.hints import some_of
from app.core.types.datatype import DataType, Field
from app.core.types.kinds import Kind

Path = tuple[str, ...]
Edit = Callable[[DataType], DataType]
ELEMENT_NAMES = ("element", "value")


class PathFault(ValueError):
    """A path that leads nowhere, or a change that cannot be made where it leads; ``member`` of the change is at
    fault.
    """

    def __init__(self, member: str, code: FaultCode, message: str, fix: str, column: str | None = None) -> None:
        super().__init__(message)
        self.member, self.code, self.fix, self.column = member, code, fix, column


def dotted(path: Sequence[str]) -> str:
    """Return the path as messages show it."""
    return ".".join(path)


def edited(data_type: DataType, path: Path, edit: Edit, depth: int = 1) -> DataType:
    """Return the type with ``edit`` done to the type that ``path`` leads to; its first ``depth`` names lead to
    ``data_type``.

    Raise ``PathFault``.
    """
    if depth == len(path):
        return edit(data_type)
    step = STEPS.get(data_type.kind)
    if step is None:
        message = f"{dotted(path[:depth])!r} is {data_type.base_sql}, which has no fields inside"
        raise _leads_nowhere(path, depth, message, f"send the path {list(path[:depth])} to alter it")
    return step(data_type, path, edit, depth)


def _leads_nowhere(path: Path, depth: int, message: str, fix: str) -> PathFault:
    return PathFault(f"/fieldNames/{depth}", FaultCode.ILLEGAL_PATH, message, fix, dotted(path))


def _into_row(row: DataType, path: Path, edit: Edit, depth: int) -> DataType:
    place = place_of(row, path, depth)
    field = row.fields[place]
    changed = replace(field, type=edited(field.type, path, edit, depth + 1))
    return replace(row, fields=(*row.fields[:place], changed, *row.fields[place + 1 :]))


def _into_element(outer: DataType, path: Path, edit: Edit, depth: int) -> DataType:
    if path[depth] not in ELEMENT_NAMES:
        name = "element" if outer.kind is Kind.ARRAY else "value"
        what = "keys of a MAP cannot be altered" if path[depth] == "key" else f"{path[depth]!r} is nothing in it"
        message = f"{dotted(path[:depth])!r} is {outer.base_sql}: {what}"
        raise _leads_nowhere(path, depth, message, f"write {name!r} here")
    return replace(outer, element=edited(outer.element_type, path, edit, depth + 1))


def _into_multiset(outer: DataType, path: Path, _edit: Edit, depth: int) -> DataType:
    message = f"{dotted(path[:depth])!r} is {outer.base_sql}: its elements are keys, which cannot be altered"
    raise _leads_nowhere(path, depth, message, "add a new column of that type and post its values")


STEPS: Mapping[Kind, Callable[[DataType, Path, Edit, int], DataType]] = {
    Kind.ROW: _into_row,
    Kind.ARRAY: _into_element,
    Kind.MAP: _into_element,
    Kind.MULTISET: _into_multiset,
}


def place_of(row: DataType, path: Path, depth: int) -> int:
    """Return the place of the field ``path[depth]`` in a ROW. Raise ``PathFault``."""
    for place, field in enumerate(row.fields):
        if field.name == path[depth]:
            return place
    known = f"fields: {some_of([field.name for field in row.fields])}"
    message = f"column {dotted(path[: depth + 1])!r} does not exist"
    raise PathFault(f"/fieldNames/{depth}", FaultCode.UNKNOWN_COLUMN, message, known, dotted(path[: depth + 1]))


def in_row(path: Path, edit_field: Callable[[DataType, int], DataType]) -> Edit:
    """Return the edit of the ROW that holds the field at the end of ``path``; ``edit_field`` gets the ROW and the
    field's place.
    """
    depth = len(path) - 1

    def edit(row: DataType) -> DataType:
        _check_row(row, path)
        return edit_field(row, place_of(row, path, depth))

    return edit


def _check_row(row: DataType, path: Path) -> None:
    if row.kind is not Kind.ROW:
        message = f"{dotted(path[:-1])!r} is {row.base_sql}, and only a ROW has fields"
        fix = (
            f"send {list(path[:-1])} and one of the names {', '.join(ELEMENT_NAMES)}, then the field, if it holds a ROW"
        )
        raise _leads_nowhere(path, len(path) - 1, message, fix)


def renamed_field(path: Path, name: str) -> Edit:
    """Return the edit that calls the field ``name``."""

    def edit(row: DataType, place: int) -> DataType:
        if name != path[-1]:
            _check_new(row, (*path[:-1], name), "/newName")
        return _with_field(row, place, replace(row.fields[place], name=name))

    return in_row(path, edit)


def described_field(path: Path, text: str | None) -> Edit:
    """Return the edit that gives the field a description, or takes it away."""
    return in_row(path, lambda row, place: _with_field(row, place, replace(row.fields[place], description=text)))


def dropped_field(path: Path) -> Edit:
    """Return the edit that drops the field."""

    def edit(row: DataType, place: int) -> DataType:
        if len(row.fields) == 1:
            message = f"{dotted(path)!r} is the only field of its ROW, which cannot be left without one"
            raise PathFault(f"/fieldNames/{len(path) - 1}", FaultCode.LAST_FIELD, message, "add another field first")
        return replace(row, fields=(*row.fields[:place], *row.fields[place + 1 :]))

    return in_row(path, edit)


def added_field(path: Path, field: Field, target: Callable[[Sequence[str]], int | None]) -> Edit:
    """Return the edit that adds ``field`` at the end of ``path``; ``target`` gives its place among the names of the
    others, None (and reports a fault) if there is none.
    """

    def edit(row: DataType) -> DataType:
        _check_row(row, path)
        _check_new(row, path, f"/fieldNames/{len(path) - 1}")
        place = target([field.name for field in row.fields])
        place = len(row.fields) if place is None else place
        return replace(row, fields=(*row.fields[:place], field, *row.fields[place:]))

    return edit


def _with_field(row: DataType, place: int, field: Field) -> DataType:
    return replace(row, fields=(*row.fields[:place], field, *row.fields[place + 1 :]))


def _check_new(row: DataType, path: Path, member: str) -> None:
    if any(field.name == path[-1] for field in row.fields):
        message = f"column {dotted(path)!r} exists already"
        raise PathFault(member, FaultCode.DUPLICATE_COLUMN, message, "choose another name", dotted(path))
