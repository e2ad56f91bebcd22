"""``keyfold status``: of a service, or of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client.endings import Exit, Failure
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TokenFile, Url
from app.cli.client.shown import say_json, say_pairs
from keyfold_client import Refused

commands = typer.Typer()
_PARTS = ("catalog", "warehouse", "spark")


@commands.command()
def status(
    table: Annotated[
        str | None, typer.Argument(metavar="[DATABASE.TABLE]", help="of what a table holds and waits for")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Say whether the service is ready (status 6 if not), or what a table holds, keeps and waits for."""
    with Service.at(url, token_file) as service:
        service.patience_seconds = 0.0  # what is asked is how it is now
        if table is None:
            _of_service(service, as_json)
        else:
            stats = service.json("GET", path_of(table, "/stats"))
            if as_json:
                say_json(stats)
            else:
                say_pairs(list(stats.items()))


def _of_service(service: Service, as_json: bool) -> None:
    told = _readiness(service)
    if as_json:
        say_json(told)
    else:
        parts = [(part, "ready" if told[part] else told["reasons"].get(part)) for part in _PARTS]
        say_pairs([("url", service.url), *parts])
    if told["status"] != "ok":
        reasons = "; ".join(f"{part}: {reason}" for part, reason in told["reasons"].items())
        raise Failure(Exit.BUSY, f"not ready: {reasons}", told=told)


def _readiness(service: Service) -> Any:
    try:
        return service.json("GET", "/readyz")
    except Refused as refused:
        if "reasons" not in refused.problem:
            raise
        return refused.problem
