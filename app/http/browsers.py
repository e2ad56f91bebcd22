"""The origins and hosts of browser requests, and which of them a service refuses (docs/decisions/0012)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from starlette.datastructures import Headers

from app.core.errors import FaultCode, Forbidden, Violation
from app.settings import is_loopback

# RFC 3986's authority without userinfo: a name, an IPv4 address or an IPv6 address in brackets, and a port.
_AUTHORITY = r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
_HOST = re.compile(_AUTHORITY)
_ORIGIN = re.compile(f"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://{_AUTHORITY}")
_ORIGIN_FIX: Final = (
    "call it from your own program, which sends no Origin; if this is a page of the service, let the proxy before it"
    " pass Host and X-Forwarded-Proto on, and name it in KEYFOLD_TRUSTED_PROXIES"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# https://www.w3.org/TR/fetch-metadata: from a page of the service itself, and from the address bar.
_OF_PAGES = (b"origin", b"sec-fetch-site")
_OWN_SITES = ("same-origin", "none")
# For pages of KEYFOLD_CORS_ORIGINS: what they may send, and which headers of the answer their scripts may read.
CROSS_ORIGIN: Final[Mapping[str, Any]] = {
    "allow_methods": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    "allow_headers": [
        *("Authorization", "Content-Encoding", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match"),
        *("Last-Event-ID", "Prefer", "X-Request-Id"),
    ],
    "expose_headers": [
        *("ETag", "Idempotency-Replayed", "Keyfold-Batch", "Keyfold-Next-Page", "Keyfold-Schema", "Keyfold-Set-Aside"),
        *("Keyfold-Snapshot", "Keyfold-Table", "Link", "Location", "Next-Page-Token", "Preference-Applied"),
        *("Retry-After", "X-Request-Id"),
    ],
    "max_age": 600,
}


@dataclass(frozen=True)
class Place:
    """The address where a service listens; ``port`` is None if it has none (a Unix socket)."""

    host: str
    port: int | None


def check_page(headers: Headers, scheme: str, origins: Collection[str] = ()) -> None:
    """Raise ``Forbidden`` for a browser request from a page of another origin. ``scheme`` is that of the request, as a
    trusted proxy forwarded it.
    """
    if any(name in _OF_PAGES for name, _ in headers.raw):  # most requests have neither header
        if (sent := headers.getlist("origin")) and all(origin in origins for origin in sent):
            return
        _refuse([*_foreign_origins(headers, scheme), *_foreign_sites(headers)])


def check_host(headers: Headers, place: Place) -> None:
    """Raise ``Forbidden`` unless the request names this machine by a loopback name or the address of ``place``.

    A page can make its own name resolve to 127.0.0.1 (DNS rebinding); it cannot make a browser call it localhost.
    """
    _refuse(_foreign_hosts(headers, place))


def _refuse(faults: list[Violation]) -> None:
    if faults:
        raise Forbidden(faults[0].message, violations=faults)


def _foreign_origins(headers: Headers, scheme: str) -> Iterator[Violation]:
    host = _HOST.fullmatch(headers.get("host", ""))
    for origin in headers.getlist("origin"):
        if not _same_place(_ORIGIN.fullmatch(origin), host, scheme):
            called = f"{scheme}://{headers.get('host', '')}"
            message = f"a page of {origin!r} may not call this service, which the request calls {called!r}"
            yield Violation("", FaultCode.FOREIGN_ORIGIN, message, _ORIGIN_FIX)


def _same_place(origin: re.Match[str] | None, host: re.Match[str] | None, scheme: str) -> bool:
    if origin is None or host is None or origin["scheme"].lower() != scheme:
        return False
    default = _DEFAULT_PORTS[scheme]
    return _named(origin, default) == _named(host, default)


def _named(authority: re.Match[str], default_port: int) -> tuple[str, int]:
    return authority["host"].lower(), int(authority["port"] or default_port)


def _foreign_sites(headers: Headers) -> Iterator[Violation]:
    for site in headers.getlist("sec-fetch-site"):
        if site.lower() not in _OWN_SITES:
            message = f"a browser sent this for a page of another origin (Sec-Fetch-Site: {site})"
            yield Violation("", FaultCode.CROSS_SITE, message, "call the service from your own program")


def _foreign_hosts(headers: Headers, place: Place) -> list[Violation]:
    hosts = headers.getlist("host")
    if len(hosts) == 1 and _is_own(hosts[0], place):
        return []
    names = " and ".join(repr(host) for host in hosts) or "no host"
    port = "" if place.port is None else f":{place.port}"
    message = f"the request names {names}; without tokens this service answers only to the names of this machine"
    fix = f"call it as http://localhost{port}, or make a token and send it: keyfold token create NAME"
    return [Violation("", FaultCode.FOREIGN_HOST, message, fix)]


@lru_cache(maxsize=256)
def _is_own(host: str, place: Place) -> bool:
    named = _HOST.fullmatch(host)
    if named is None or (named["port"] and place.port is not None and int(named["port"]) != place.port):
        return False
    address = named["host"].lower().strip("[]")
    return is_loopback(address) or address == place.host.lower()
