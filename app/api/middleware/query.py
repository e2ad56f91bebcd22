"""Query parameters: only those that the route declares, since a misspelled one would be ignored silently."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute

from app.api.middleware.declarations import Declared
from app.core.errors import FaultCode, Invalid, Violation
from app.core.hints import nearest

# Parameters of one request: 100 filters, 100 values of a key, and the others of a route.
MOST_PARAMETERS: Final = 300


class DeclaredQuery:
    """Refuses query parameters that the request's route does not declare; its signature declares them."""

    def __init__(self) -> None:
        self._declared = Declared(_names)

    async def __call__(self, request: Request) -> None:
        """Raise ``Invalid`` for too many parameters, or with every unknown one and the nearest known name."""
        query: bytes = request.scope["query_string"]
        if not query:
            return
        if query.count(b"&") >= MOST_PARAMETERS:
            raise _too_many()
        declared = self._declared.get(request.scope["route"])
        faults = [_unknown(name, declared) for name in dict.fromkeys(request.query_params) if name not in declared]
        if faults:
            message = faults[0].message if len(faults) == 1 else f"the request has {len(faults)} faults"
            raise Invalid(message, violations=faults)


def _names(route: APIRoute) -> frozenset[str]:
    fields = get_flat_params(route.dependant)
    return frozenset(field.alias for field in fields if getattr(field.field_info, "in_", None) is ParamTypes.query)


def _too_many() -> Invalid:
    message = f"the request has more than {MOST_PARAMETERS} query parameters"
    fix = "send fewer: filter=column.in.(a,b) takes many values, rows:batchGet many keys"
    return Invalid(f"{message}; {fix}", violations=[Violation("", FaultCode.TOO_MANY, message, fix)])


def _unknown(name: str, declared: frozenset[str]) -> Violation:
    near = nearest(name, sorted(declared))
    known = ", ".join(sorted(declared)) or "none"
    fix = f"did you mean {near}?" if near else f"remove it; this route's parameters: {known}"
    return Violation("", FaultCode.UNKNOWN_PARAMETER, f"unknown query parameter {name[:100]!r}: {fix}", fix)
