"""``keyfold database``: made and listed."""

from __future__ import annotations

import typer

from app.cli.client.service import CATALOG, Service
from app.cli.client.settings import AsJson, TokenFile, Url
from app.cli.client.shown import say, say_json, tell

commands = typer.Typer(help="Databases of a service: made, listed.", no_args_is_help=True)


@commands.command("create")
def create(name: str, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Make a database."""
    with Service.at(url, token_file) as service:
        made = service.json("POST", CATALOG, json={"name": name})
    if as_json:
        say_json(made)
    else:
        tell(f"database {name} is made")


@commands.command("list")
def list_all(url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Name all databases."""
    with Service.at(url, token_file) as service:
        names = list(service.listed(CATALOG, "databases"))
    if as_json:
        say_json(names)
    else:
        for name in names:
            say(name)
