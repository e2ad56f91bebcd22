"""``keyfold tail``: a table's changelog as it grows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer
from httpx_sse import EventSource, ServerSentEvent, SSEError

from app.cli.client.commands.tables import TableName
from app.cli.client.endings import failure_of
from app.cli.client.service import Service, path_of
from app.cli.client.settings import TokenFile, Url
from app.cli.client.shown import say, tell
from keyfold_client import NotKeyfold, Unreachable
from keyfold_client.errors import refused

commands = typer.Typer()
_PAUSE_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 600.0  # that a service which answered before is waited for


@commands.command()
def tail(
    table: TableName,
    since: Annotated[
        int | None, typer.Option("--from", min=1, help="the first snapshot; else only what comes from now on")
    ] = None,
    until: Annotated[int | None, typer.Option("--to", min=1, help="the last snapshot; else without end")] = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Write the changes of a table as they are merged, a line of JSON each. A connection that breaks is made again, and
    nothing is missing or twice.
    """
    with Service.at(url, token_file) as service:
        # A place of our own from the start: anyone who connects again without one would miss what was merged meanwhile.
        first = since or (service.json("GET", path_of(table, "/stats"))["snapshotId"] or 0) + 1
        service.patience_seconds = _PATIENCE_SECONDS
        place = f"{first}.0"
        while until is None or int(place.partition(".")[0]) <= until:
            for event in _events(service, path_of(table, "/changelog"), place, until):
                place = event.id or place
                _write(event)
            time.sleep(_PAUSE_SECONDS)


def _events(service: Service, path: str, place: str, until: int | None) -> Iterator[ServerSentEvent]:
    """Those behind ``place`` until the connection ends, however it does."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store", "Last-Event-ID": place}
    params: Mapping[str, int] = {} if until is None else {"toSnapshot": until}
    try:
        with service.streamed(path, params=params, headers=headers) as answer:
            yield from EventSource(answer).iter_sse()
    except Unreachable as error:
        if not error.sent:
            raise
        tell(f"{failure_of(error).lines[0]}; connecting again")
    except SSEError as error:
        raise NotKeyfold(service.url) from error


def _write(event: ServerSentEvent) -> None:
    """A change is a line; the service ends what cannot go on with its problem."""
    if event.event == "error":
        problem = json.loads(event.data)
        raise refused(problem, problem["status"])
    if event.event == "message":
        say(event.data)
