"""``keyfold database``: create, list, drop."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client.endings import Exit, Failure
from app.cli.client.service import CATALOG, Service, segment
from app.cli.client.settings import AsJson, TokenFile, Url
from app.cli.client.shown import report, say, say_json

commands = typer.Typer(name="database", help="Create, list and drop databases.", no_args_is_help=True)


@commands.command("create")
def create(name: str, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Create a database."""
    with Service.at(url, token_file) as service:
        made = service.json("POST", CATALOG, json={"name": name})
    if as_json:
        say_json(made)
    else:
        report(f"database {name} is made")


@commands.command("list")
def list_all(url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """List all databases."""
    with Service.at(url, token_file) as service:
        names = list(service.listed(CATALOG, "databases"))
    if as_json:
        say_json(names)
    else:
        for name in names:
            say(name)


@commands.command("drop")
def drop(
    name: str,
    cascade: Annotated[bool, typer.Option("--cascade", help="with its tables, all of their rows and files")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Drop a database; with --cascade also its tables."""
    with Service.at(url, token_file) as service:
        path = f"{CATALOG}/{segment(name)}"
        tables = list(service.listed(f"{path}/tables", "tables"))
        with_tables = f" with its {len(tables)} tables and all of their rows" if tables and cascade else ""
        if not yes and not typer.confirm(f"Drop database {name}{with_tables}? Nothing brings it back", err=True):
            raise Failure(Exit.REFUSED, "nothing is dropped")
        service.ask("DELETE", path, params={"cascade": "true" if cascade else "false"})
    report(f"database {name} is dropped")
