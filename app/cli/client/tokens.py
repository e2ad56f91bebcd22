"""API tokens of a remote service (``keyfold token`` with ``--url``), and the output of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.cli.client.failures import failure_of
from app.cli.client.service import Service, segment
from app.cli.client.shown import moment, report, say, say_json, say_table
from keyfold_client import KeyfoldError

_TOKENS = "/v1/tokens"


@contextmanager
def _service(url: str, token_file: Path | None) -> Iterator[Service]:
    """Return the service. Raise ``Failure``."""
    try:
        with Service.at(url, token_file) as service:
            yield service
    except KeyfoldError as error:
        raise failure_of(error) from error


def make(url: str, token_file: Path | None, wish: Mapping[str, Any]) -> None:
    """Create a token and print it. It is not shown again."""
    with _service(url, token_file) as service:
        say(service.json("POST", _TOKENS, json=dict(wish))["token"])


def listed(url: str, token_file: Path | None) -> list[Mapping[str, Any]]:
    """Return the tokens by name, each as the API answers it."""
    with _service(url, token_file) as service:
        return list(service.listed(_TOKENS, "tokens"))


def say_tokens(tokens: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print tokens as the API answers them: a table, or JSON for scripts."""
    if as_json:
        say_json(tokens)
    else:
        say_table(("name", "role", "on", "created", "expires", "last used"), [_line(token) for token in tokens])


def _line(token: Mapping[str, Any]) -> tuple[object, ...]:
    times = (token[member] for member in ("createdAt", "expiresAt", "lastUsedAt"))
    return token["name"], token["role"], " ".join(token["on"]), *(moment(time) or "never" for time in times)


def revoke(url: str, token_file: Path | None, name: str) -> None:
    """Revoke a token."""
    with _service(url, token_file) as service:
        service.ask("DELETE", f"{_TOKENS}/{segment(name)}")
    report(f"token {name} is revoked")
