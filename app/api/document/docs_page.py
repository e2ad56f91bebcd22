"""``/docs``: the OpenAPI document as an interactive page, whose scripts and styles are files of installed packages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse

DOCS_PATH: Final = "/docs"
_OWN, _SWAGGER_UI = ("app.api.document", "assets"), ("fastapi_swagger", "resources")  # Swagger UI itself: Apache-2.0
_PARTS: Final[Mapping[str, tuple[tuple[str, str], str]]] = {
    DOCS_PATH: (_OWN, "docs.html"),
    **{f"{DOCS_PATH}/{name}": (_OWN, name) for name in ("start.js",)},
    **{
        f"{DOCS_PATH}/{name}": (_SWAGGER_UI, name)
        for name in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
    },
}
PAGE_PATHS: Final = frozenset(_PARTS)
# Scripts are files of this service, never text of the page; Swagger UI sets styles on elements.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "max-age=3600",
}
Endpoint = Callable[[Request], Awaitable[FileResponse]]


def install_docs(app: FastAPI) -> None:
    """Make ``app`` answer the page and its parts; neither needs a token."""
    for path, ((package, folder), name) in _PARTS.items():
        app.add_route(path, _answering(Path(str(files(package) / folder / name))), include_in_schema=False)


def _answering(file: Path) -> Endpoint:
    async def answer(_: Request) -> FileResponse:
        return FileResponse(file, headers=_HEADERS)

    return answer
