"""Answers for Paimon's own clients, and the parts of Paimon's REST protocol that are not implemented
(docs/decisions/0030).

``/v1/config`` makes each of these clients send ``Keyfold-Client: paimon``: only this header identifies them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request

from app.api.shared.paths import CATALOG_PATH, PREFIX, sent_path
from app.core.errors import Unsupported

_HEADER: Final = "Keyfold-Client"
_PAIMON: Final = "paimon"
# Overrides win over what a client sets. A client that asks for a token before it opens a file learns from the refusal
# that the files are not Paimon's, before it reads or writes them.
CONFIG_OVERRIDES: Final[Mapping[str, str]] = {
    "prefix": PREFIX,
    f"header.{_HEADER}": _PAIMON,
    "data-token.enabled": "true",
}
# A reader asks ``T/auth`` first, also of a table without a snapshot, which would else be read as empty.
TABLE_OPTIONS: Final[Mapping[str, str]] = {"query-auth.enabled": "true"}


def is_paimon(request: Request) -> bool:
    """Return whether the request comes from one of Paimon's own clients."""
    return request.headers.get(_HEADER) == _PAIMON


async def _is_paimon(request: Request) -> bool:
    return is_paimon(request)


PaimonClient = Annotated[bool, Depends(_is_paimon)]


@dataclass(frozen=True)
class NotDone:
    """A part of Paimon's REST protocol that is not implemented: its routes, as methods and paths below the catalog's,
    and the alternative. ``T`` in ``text`` is the path of the requested table.
    """

    text: str
    routes: tuple[str, ...]


_D: Final = "databases/{}"
_T: Final = f"{_D}/tables/{{}}"
NO_FILES: Final = NotDone(
    "the files of a Keyfold table are not Paimon's, so Paimon's clients can neither read nor write them: read rows with"
    " GET T/rows or GET T/rows:scan, write with POST T/batches; PyIceberg and others read the files where"
    " iceberg.publish is true: GET T/iceberg says how",
    (f"POST {_T}/auth", f"GET {_T}/token"),
)
NOT_DONE: Final[Iterable[NotDone]] = (
    NotDone(
        "Keyfold takes no commits of Paimon's clients, for its files are not Paimon's: write with POST T/batches",
        (f"POST {_T}/commit",),
    ),
    NO_FILES,
    NotDone(
        "Keyfold makes no empty partitions: POST T/batches makes those of its rows, POST T/partitions/drop drops some",
        (f"POST {_T}/partitions", f"POST {_T}/partitions/alter", f"POST {_T}/partitions/mark"),
    ),
    NotDone(
        "Keyfold has no branches: keep a snapshot by a tag (POST T/tags), go back to it with POST T/rollback,"
        " write with POST T/batches",
        (
            f"GET {_T}/branches",
            f"POST {_T}/branches",
            f"DELETE {_T}/branches/{{}}",
            f"POST {_T}/branches/{{}}/rename",
            f"POST {_T}/branches/{{}}/forward",
        ),
    ),
    NotDone(
        "Keyfold keeps no consumers: read GET T/changelog from the snapshot that you remember yourself,"
        " write with POST T/batches",
        (
            f"GET {_T}/consumers",
            f"POST {_T}/consumers",
            f"GET {_T}/consumers/{{}}",
            f"POST {_T}/consumers/{{}}",
            f"DELETE {_T}/consumers/{{}}",
        ),
    ),
    NotDone(
        "Keyfold has no views: define them in the engine that reads; tables are written with POST T/batches",
        (
            "GET views",
            "POST views/rename",
            f"GET {_D}/views",
            f"POST {_D}/views",
            f"GET {_D}/view-details",
            f"GET {_D}/views/{{}}",
            f"POST {_D}/views/{{}}",
            f"DELETE {_D}/views/{{}}",
        ),
    ),
    NotDone(
        "Keyfold has no functions of users: how a column is folded says the table's option"
        " fields.<column>.aggregate-function; tables are written with POST T/batches",
        (
            "GET functions",
            f"GET {_D}/functions",
            f"POST {_D}/functions",
            f"GET {_D}/function-details",
            f"GET {_D}/functions/{{}}",
            f"POST {_D}/functions/{{}}",
            f"DELETE {_D}/functions/{{}}",
        ),
    ),
    NotDone(
        "Keyfold has none of Paimon's permissions: tokens say who may do what, POST /v1/tokens makes one",
        ("GET permissions", "POST permissions/grant", "POST permissions/revoke"),
    ),
    NotDone(
        "Keyfold lists tables a database at a time: GET /v1/catalog/databases/{database}/tables",
        ("GET tables",),
    ),
)
_TABLE: Final = re.compile(f"{re.escape(CATALOG_PATH)}/{_T.replace('{}', '[^/]+')}")
_PLACE: Final = re.compile(r"\bT/")
_ANY_TABLE: Final = f"{CATALOG_PATH}/databases/{{database}}/tables/{{table}}"


def _pattern(route: str) -> re.Pattern[str]:
    method, path = route.split(" ")
    return re.compile(f"{method} {re.escape(CATALOG_PATH)}/{path.replace('{}', '[^/]+')}")


_ROUTES: Final = [(_pattern(route), entry) for entry in NOT_DONE for route in entry.routes]


def not_done(request: Request) -> Unsupported | None:
    """Return why no route takes ``request``, if it is one of Paimon's protocol; None for any other."""
    line = f"{request.method} {sent_path(request).removesuffix('/')}"
    route = next((entry for pattern, entry in _ROUTES if pattern.fullmatch(line)), None)
    return None if route is None else refusal_of(route, request)


def refusal_of(entry: NotDone, request: Request) -> Unsupported:
    """Return the refusal of ``entry`` for the caller."""
    table = _TABLE.match(sent_path(request))
    return Unsupported(_PLACE.sub(lambda _: f"{table[0] if table else _ANY_TABLE}/", entry.text))
