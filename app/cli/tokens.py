"""``keyfold token``."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Annotated

import typer

from app.cli.catalog import migrated, there
from app.cli.client import tokens as over_http
from app.cli.client.settings import TokenFile
from app.cli.settings import DataFolder, settings_of
from app.core.access import EVERYTHING, Role
from app.services.access.tokens import Wish, make_token, told_of
from app.services.operating.audit_log import AuditLog

Url = Annotated[
    str | None, typer.Option("--url", help="of a service elsewhere, over HTTP, with a token whose role is admin")
]
commands = typer.Typer(help="API tokens: made, listed, revoked.", no_args_is_help=True)


@commands.command("create")
def token_create(
    name: str,
    role: Annotated[
        Role, typer.Option(help="what it may do; each role may do what the one before it may")
    ] = Role.ADMIN,
    on: Annotated[
        list[str] | None,
        typer.Option(help="what for: '*', 'shop.*' or 'shop.orders'; may be given again  [default: *]"),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="90d, 12h, or a time: 2027-01-31T18:00:00Z")] = None,
    webhook: Annotated[
        bool, typer.Option("--webhook", help="a secret that signs requests (Standard Webhooks), as Debezium can")
    ] = False,
    data: DataFolder = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Make a token; it is shown only now."""
    if url is not None:
        patterns = on or [EVERYTHING]
        wish = {"name": name, "role": role, "on": patterns, "expires": expires, "webhook": webhook}
        over_http.make(url, token_file, wish)
        return
    database, audit = migrated(data), _audit_log(data)
    with database.transaction() as repository:
        made = make_token(repository, Wish(name, role, on or [EVERYTHING], expires, webhook))
    typer.echo(made.secret)
    _tell(audit, "createToken", **told_of(made.token))
    database.close()


@commands.command("list")
def token_list(data: DataFolder = None, url: Url = None, token_file: TokenFile = None) -> None:
    """List tokens by name: role, what for, and when they were made, expire and were last used."""
    if url is not None:
        over_http.show(url, token_file)
        return
    database = there(data)
    typer.echo("name\trole\ton\tcreated\texpires\tlast used")
    with database.reading() as repository:
        for token in repository.tokens.page():
            times = (token.created_at, token.expires_at, token.last_used_at)
            told = ["never" if time is None else time.isoformat() for time in times]
            typer.echo("\t".join([token.name, token.role, " ".join(token.scope.patterns), *told]))
    database.close()


@commands.command("revoke")
def token_revoke(name: str, data: DataFolder = None, url: Url = None, token_file: TokenFile = None) -> None:
    """Take a token back; running servers follow at once."""
    if url is not None:
        over_http.revoke(url, token_file, name)
        return
    database, audit = there(data), _audit_log(data)
    with database.transaction() as repository:
        repository.tokens.revoke(name)
    _tell(audit, "revokeToken", name=name)
    database.close()


def _audit_log(data: Path | None) -> AuditLog | None:
    """The audit log, if there is one, opened before anything is done. What a command prints is its standard output."""
    destination = settings_of(folder=data).audit_log
    return None if destination is None else AuditLog("stderr" if destination == "stdout" else destination)


def _tell(audit: AuditLog | None, operation: str, **members: object) -> None:
    """Tell the audit log what this machine's user did at the command line."""
    if audit is not None:
        audit.write(user=_user(), operation=operation, **members, outcome="done")
        audit.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that has no name
        return f"uid {os.getuid()}"
