"""``keyfold tail``: a table's changelog as it grows."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from app.cli.client.service import Service, named
from app.cli.client.settings import TableName, TokenFile, Url
from app.cli.client.shown import say
from keyfold_client import Table

commands = typer.Typer()
# The command waits this long for a service that has answered before.
_PATIENCE_SECONDS: Final = 600.0


@commands.command()
def tail(
    table: TableName,
    since: Annotated[
        int | None, typer.Option("--from", min=1, help="the first snapshot; by default only changes from now on")
    ] = None,
    until: Annotated[int | None, typer.Option("--to", min=1, help="the last snapshot; else without end")] = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Print the changes of a table as they are merged, a line of JSON each. After a lost connection it continues,
    without gaps or repeats.
    """
    with Service.at(url, token_file) as service:
        service.patience_seconds = _PATIENCE_SECONDS
        for line, _ in Table(service, *named(table)).change_lines(since=since, until=until):
            say(line)
