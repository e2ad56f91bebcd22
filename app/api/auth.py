"""Who may call: a bearer token where tokens exist or the service is open to the network (design §7, promise 6)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Header

from app.api.deps import PartsDep
from app.core.errors import Unauthorized

OptionalHeader = Annotated[str | None, Header(include_in_schema=False)]


def require_token(
    parts: PartsDep, authorization: OptionalHeader = None, origin: OptionalHeader = None, host: OptionalHeader = None
) -> None:
    """Raises ``Unauthorized`` unless the request may pass.

    A browser names the page that sends a request as its ``Origin``: pages of other hosts may not reach a service that
    trusts whoever can connect.
    """
    if origin is not None and (host is None or _host_of(origin) != host):
        raise Unauthorized(f"a page of {origin} may not call this service; call it from your own program")
    parts.gate.check(authorization)


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


Guarded = Depends(require_token)
