"""``keyfold token``."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from app.api.shared.answers import epoch_millis
from app.cli.catalog import existing, migrated
from app.cli.client import tokens as over_http
from app.cli.client.settings import AsJson, TokenFile
from app.cli.settings import DataFolder, settings_of
from app.core.access import EVERYTHING, Role
from app.services.access.tokens import Wish, audit_members, make_token
from app.services.operating.audit_log import AuditLog

Url = Annotated[
    str | None, typer.Option("--url", help="URL of a service to use over HTTP; needs a token with the role admin")
]
commands = typer.Typer(name="token", help="Create, list and revoke API tokens.", no_args_is_help=True)


@commands.command("create")
def token_create(
    name: str,
    role: Annotated[Role, typer.Option(help="its role; each role includes the one before it")] = Role.ADMIN,
    on: Annotated[
        list[str] | None,
        typer.Option(help="tables that it may use: '*', 'shop.*' or 'shop.orders'; may be repeated  [default: *]"),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="90d, 12h, or a time: 2027-01-31T18:00:00Z")] = None,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="a secret that signs requests (Standard Webhooks), as Debezium can")
    ] = False,
    data: DataFolder = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Create a token and print it. It is not shown again."""
    if url is not None:
        patterns = on or [EVERYTHING]
        wish = {"name": name, "role": role, "on": patterns, "expires": expires, "webhook": webhook}
        over_http.make(url, token_file, wish)
        return
    database, audit = migrated(data), _audit_log(data)
    with database.transaction() as repository:
        made = make_token(repository, Wish(name, role, on or [EVERYTHING], expires, webhook))
    typer.echo(made.secret)
    _log(audit, "createToken", **audit_members(made.token))
    database.close()


@commands.command("list")
def token_list(data: DataFolder = None, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """List tokens by name: role, scope, and when they were created, expire and were last used."""
    tokens = _local(data) if url is None else over_http.listed(url, token_file)
    over_http.say_tokens(tokens, as_json=as_json)


def _local(data: Path | None) -> list[Mapping[str, Any]]:
    """Return the tokens of the data folder, each as the API answers it."""
    database = existing(data)
    with database.reading() as repository:
        tokens: list[Mapping[str, Any]] = [
            {
                "name": token.name,
                "role": token.role.value,
                "on": list(token.scope.patterns),
                "createdAt": _millis(token.created_at),
                "expiresAt": _millis(token.expires_at),
                "lastUsedAt": _millis(token.last_used_at),
            }
            for token in repository.tokens.page()
        ]
    database.close()
    return tokens


def _millis(time: datetime | None) -> int | None:
    return None if time is None else epoch_millis(time)


@commands.command("revoke")
def token_revoke(name: str, data: DataFolder = None, url: Url = None, token_file: TokenFile = None) -> None:
    """Revoke a token. Running services refuse it within two seconds."""
    if url is not None:
        over_http.revoke(url, token_file, name)
        return
    database, audit = existing(data), _audit_log(data)
    with database.transaction() as repository:
        repository.tokens.revoke(name)
    _log(audit, "revokeToken", name=name)
    database.close()


def _audit_log(data: Path | None) -> AuditLog | None:
    """Return the opened audit log, if there is one; None if it is standard output, which is for the command."""
    destination = settings_of(folder=data).audit_log
    return None if destination is None else AuditLog("stderr" if destination == "stdout" else destination)


def _log(audit: AuditLog | None, operation: str, **members: object) -> None:
    """Write a line of the audit log for a command of this machine's user."""
    if audit is not None:
        audit.write(user=_user(), operation=operation, **members, outcome="done")
        audit.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"
