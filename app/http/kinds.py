"""The HTTP status of each kind of failure: the only such table."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from app.core.errors import (
    AlreadyExists,
    Conflict,
    DamagedCatalog,
    Forbidden,
    Invalid,
    KeyfoldError,
    KeyReused,
    NotAcceptable,
    NotFound,
    PreconditionFailed,
    StagingFull,
    TooLarge,
    TooMany,
    TooSlow,
    Unauthorized,
    Unavailable,
    Unsupported,
    UnsupportedMediaType,
)
from app.core.table.upkeep.damage import DamagedFile

KINDS: Mapping[type[KeyfoldError], HTTPStatus] = {
    Invalid: HTTPStatus.BAD_REQUEST,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyExists: HTTPStatus.CONFLICT,
    Conflict: HTTPStatus.CONFLICT,
    PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooSlow: HTTPStatus.REQUEST_TIMEOUT,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    NotAcceptable: HTTPStatus.NOT_ACCEPTABLE,
    UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    StagingFull: HTTPStatus.TOO_MANY_REQUESTS,
    Unsupported: HTTPStatus.NOT_IMPLEMENTED,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    DamagedFile: HTTPStatus.SERVICE_UNAVAILABLE,
    DamagedCatalog: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(error: KeyfoldError) -> int:
    """Return the status of the nearest kind that has one; 500 for unexpected errors."""
    return next((KINDS[kind] for kind in type(error).__mro__ if kind in KINDS), HTTPStatus.INTERNAL_SERVER_ERROR)
