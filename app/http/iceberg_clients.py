"""The path of the catalog for Iceberg's clients, and errors in their format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.core.errors import Forbidden, KeyfoldError

ICEBERG_PATH: Final = "/iceberg/v1"
ICEBERG_TOKENS: Final = f"{ICEBERG_PATH}/oauth/tokens"
_TYPES: Final[Mapping[int, str]] = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    406: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}
_NO_NAMESPACE: Final = "NoSuchNamespaceException"
_MISSING: Final[Mapping[str, str]] = {"tables": "NoSuchTableException", "views": "NoSuchViewException"}


def is_icebergs(path: str) -> bool:
    """Return whether the path is one of the Iceberg catalog's."""
    return path.startswith(f"{ICEBERG_PATH}/")


def read_only() -> KeyfoldError:
    """Return the refusal of everything that writes."""
    return Forbidden(
        "the Iceberg catalog is for reading: rows are folded by their table's rules, so write with POST T/batches, with"
        ' the Python client, or with format("keyfold") in Spark; create and alter tables under /v1/catalog'
    )


def error_member(path: str, error: KeyfoldError, status: int) -> dict[str, Any]:
    """Return the member ``error`` of a failure. Iceberg's clients choose their exception by it.

    A missing namespace on the way to a table is reported as a missing table: Spark takes the table of
    ``k.shop.orders.snapshots`` for a namespace first, and looks further only where the table is missing.
    """
    kind = _missing(path) if status == 404 else _TYPES.get(status, "RESTException")
    return {"message": error.message, "type": kind, "code": int(status)}


def _missing(path: str) -> str:
    of_namespace = path.removeprefix(f"{ICEBERG_PATH}/namespaces/").split("/")
    return _MISSING.get(of_namespace[1], _NO_NAMESPACE) if len(of_namespace) > 2 else _NO_NAMESPACE
