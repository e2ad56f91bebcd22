"""``keyfold open``: pages of the console."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import typer

from app.cli.client.service import named, segment
from app.cli.client.settings import TokenFile, Url, client_settings
from app.cli.client.shown import say

commands = typer.Typer()


@commands.command("open")
def open_page(
    table: Annotated[str | None, typer.Argument(metavar="[DATABASE.TABLE]", help="its page")] = None,
    key: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="the page of a row")] = None,
    print_only: Annotated[bool, typer.Option("--print", help="print the address, open nothing")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Open the console in a browser: its home, the page of a table, or of a row."""
    page = client_settings(url, token_file).url + "/"
    if table is not None:
        page += "console/tables/" + "/".join(segment(name) for name in named(table))
    if key:
        page += f"/row?{urlencode([('key', text) for text in key])}"
    say(page)
    if not print_only:
        typer.launch(page)
