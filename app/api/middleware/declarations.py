"""Declarations of routes, read once per route for dependencies of all routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fastapi.routing import APIRoute

Read = TypeVar("Read")


class Declared(Generic[Read]):
    """The result of ``read`` for the declaration of a route, cached by endpoint."""

    def __init__(self, read: Callable[[APIRoute], Read]) -> None:
        self._read = read
        self._known: dict[Callable[..., Any], Read] = {}

    def get(self, route: APIRoute) -> Read:
        """Return the declarations of ``route``; they are read once."""
        if route.endpoint not in self._known:
            self._known[route.endpoint] = self._read(route)
        return self._known[route.endpoint]
