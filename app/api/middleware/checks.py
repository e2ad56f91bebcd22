"""The checks of every request before its route runs: one dependency, since each that FastAPI solves costs time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fastapi import Depends, Request

from app.api.middleware.conditions import TakenConditions
from app.api.middleware.negotiation import Acceptable
from app.api.middleware.permits import check_permitted
from app.api.middleware.query import DeclaredQuery

_CHECKS: Final[Sequence[Callable[[Request], Awaitable[None]]]] = (
    check_permitted,
    DeclaredQuery(),
    Acceptable(),
    TakenConditions(),
)


async def _checked(request: Request) -> None:
    for check in _CHECKS:
        await check(request)


OnlyChecked: Final = Depends(_checked)
