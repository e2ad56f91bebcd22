"""An action of the console as a command for a terminal."""

from __future__ import annotations

import shlex
from typing import Final
from urllib.parse import quote

from starlette.requests import Request

from app.services.bodies.json_bodies import json_text

# Never the token itself: pages are shown to others.
_AUTHORIZED: Final = '-H "Authorization: Bearer $KEYFOLD_TOKEN"'


def table_path(database: str, table: str, rest: str = "") -> str:
    """Return the path of a table in the API."""
    return f"{database_path(database)}/tables/{quote(table, safe='')}{rest}"


def database_path(database: str, rest: str = "") -> str:
    """Return the path of a database in the API."""
    return f"/v1/catalog/databases/{quote(database, safe='')}{rest}"


def curl_of(request: Request, method: str, path: str, body: object, media_type: str, *, token: bool) -> str:
    """Return the ``curl`` command that sends ``method`` to ``path``, with ``body`` as JSON, or as it is if text."""
    words = ["curl"]
    if method not in ("GET", "POST") or (method == "POST" and body is None):
        words.append(f"-X {method}")
    words.append(shlex.quote(f"{str(request.base_url).rstrip('/')}{path}"))
    if token:
        words.append(_AUTHORIZED)
    if body is None:
        return " ".join(words)
    text = body if isinstance(body, str) else json_text(body, indent=1)
    words += [f"-H {shlex.quote(f'Content-Type: {media_type}')}", f"--data-binary {shlex.quote(text)}"]
    return " \\\n  ".join([" ".join(words[:2]), *words[2:]])
