"""The files of the pages: our own, and those of installed packages. Their address changes with what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.responses import Response
from xxhash import xxh3_64_hexdigest

ASSETS_PATH: Final = "/console/assets/"
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
# By name: the package and the path in it.
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "console.css": ("app.console", "assets/console.css"),
    "console.js": ("app.console", "assets/console.js"),
    "icon.svg": ("app.console", "assets/icon.svg"),
    "row.js": ("app.console", "assets/row.js"),
    "upload.js": ("app.console", "assets/upload.js"),
    "playground.js": ("app.console", "assets/playground.js"),
    "htmx.js": ("js_lib_htmx", "static/htmx/htmx.min.js"),  # 0BSD
}
_KEPT: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    """One file as it is served."""

    content: bytes
    media_type: str
    digest: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return every asset by its name. They are a few files, and are read once."""
    by_name = {}
    for name, (package, path) in _FILES.items():
        content = files(package).joinpath(path).read_bytes()
        by_name[name] = Asset(content, _TYPES[name.rsplit(".", 1)[1]], xxh3_64_hexdigest(content))
    return by_name


def asset_url(name: str) -> str:
    """Return the address of an asset, which a browser may keep forever."""
    return f"{ASSETS_PATH}{name}?{assets()[name].digest}"


def answer_asset(name: str, digest: str) -> Response | None:
    """Return the asset; None if there is none of that name. While a service of another version runs, too, a page may
    ask for another ``digest``: that answer must not be cached.
    """
    asset = assets().get(name)
    if asset is None:
        return None
    cache_control = _KEPT if digest == asset.digest else "no-store"
    headers = {"Cache-Control": cache_control, "X-Content-Type-Options": "nosniff"}
    return Response(asset.content, media_type=asset.media_type, headers=headers)
