"""API tokens of a service that is elsewhere: ``keyfold token`` with ``--url``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from app.cli.client.service import Service
from app.cli.client.shown import moment, say, say_table, tell

_TOKENS = "/v1/tokens"


def make(url: str, token_file: Path | None, wish: Mapping[str, Any]) -> None:
    """Make a token; it is shown only now."""
    with Service.at(url, token_file) as service:
        say(service.json("POST", _TOKENS, json=dict(wish))["token"])


def show(url: str, token_file: Path | None) -> None:
    """List the tokens."""
    with Service.at(url, token_file) as service:
        tokens = list(service.listed(_TOKENS, "tokens"))
    columns = ("name", "role", "on", "created", "expires", "last used")
    say_table(columns, [_line(token) for token in tokens])


def _line(token: Mapping[str, Any]) -> tuple[object, ...]:
    times = (token[member] for member in ("createdAt", "expiresAt", "lastUsedAt"))
    return token["name"], token["role"], " ".join(token["on"]), *(moment(time) or "never" for time in times)


def revoke(url: str, token_file: Path | None, name: str) -> None:
    """Take a token back."""
    with Service.at(url, token_file) as service:
        service.ask("DELETE", f"{_TOKENS}/{quote(name, safe='')}")
    tell(f"token {name} is revoked")
