"""The operation of a request, found before the router by the router's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute
from starlette.types import Scope

from app.api.shared.needs import NEEDS, Need
from app.api.shared.paths import sent_name
from app.api.shared.slashes import without_last_slash

_NOUNS: tuple[str, ...] = ("database", "table")


@dataclass(frozen=True)
class Operation:
    """One operation: its id, and its requirements; None if it is open to all."""

    id: str
    need: Need | None
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Routed:
    """The operation of a request, and the names of the database and the table in its path, as the route reads them."""

    operation: Operation
    names: Mapping[str, str]


class Operations:
    """The operations of all routes, by method, in the router's own order: the first match is the request's."""

    def __init__(self, routes: Iterable[Any]) -> None:
        """Raise ``LookupError`` for a route whose operation is not in ``NEEDS``."""
        self._of: dict[str, list[Operation]] = {}
        for route in routes:
            if isinstance(route, APIRoute):
                name = str(route.operation_id)
                operation = Operation(name, _need_of(name), route.path_regex)
                for method in route.methods or ():
                    self._of.setdefault(method, []).append(operation)

    @property
    def ids(self) -> set[str]:
        """The ids of all operations."""
        return {operation.id for operations in self._of.values() for operation in operations}

    def routed(self, scope: Scope) -> Routed | None:
        """Return the operation of the request; None if no route takes it."""
        operations = self._of.get("GET" if scope["method"] == "HEAD" else scope["method"], [])
        path: str = scope["path"]
        matched = _first(operations, path)
        if matched is None and (shorter := without_last_slash(scope)) is not None:
            matched = _first(operations, shorter[0])
        if matched is None:
            return None
        operation, match = matched
        names = match.groupdict()
        return Routed(operation, {noun: sent_name(scope, noun, names[noun]) for noun in _NOUNS if noun in names})


def _first(operations: Iterable[Operation], path: str) -> tuple[Operation, re.Match[str]] | None:
    for operation in operations:
        match = operation.pattern.match(path)
        if match is not None:
            return operation, match
    return None


def _need_of(operation_id: str) -> Need | None:
    if operation_id not in NEEDS:
        raise LookupError(f"the operation {operation_id} has no entry in app/api/shared/needs.py")
    return NEEDS[operation_id]
