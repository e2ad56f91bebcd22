"""``keyfold merge`` and ``keyfold compact``."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress

from app.cli.client.endings import Exit, Failure
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import report, say_json

commands = typer.Typer()
# Time between two checks of a task, at first and later.
LOOK_SECONDS: Final = (0.1, 1.0)
_OPEN = ("pending", "running")
Wait = Annotated[bool, typer.Option("--wait", help="wait for its end; status 1 if it did not succeed")]


@commands.command()
def merge(
    table: TableName, wait: Wait = False, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Merge the staged batches now, before they are due."""
    with Service.at(url, token_file) as service:
        task = service.json("POST", path_of(table, "/merges"), again=True)
        _end(service, table, task, wait, as_json)


@commands.command()
def compact(
    table: TableName,
    due: Annotated[bool, typer.Option("--due", help="only the runs that the table's policy picks; else all")] = False,
    wait: Wait = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Combine the runs of a table."""
    with Service.at(url, token_file) as service:
        task = service.json("POST", path_of(table, "/compact"), json={"full": not due}, again=True)
        _end(service, table, task, wait, as_json)


def _end(service: Service, table: str, task: dict[str, Any], wait: bool, as_json: bool) -> None:
    last = _waited(service, path_of(table, f"/merges/{task['id']}"), task) if wait else task
    if last["state"] not in (*_OPEN, "succeeded"):
        what = f"the {last['job']} of {table} {last['state']}: {last['error']}"
        raise Failure(Exit.REFUSED, what, payload=last)
    if as_json:
        say_json(last)
    elif wait:
        snapshot = f", snapshot {last['snapshotId']}" if last["snapshotId"] else ""
        report(f"{last['job']} {last['state']}: {last['records']} records, {last['rows']} rows{snapshot}")
    else:
        report(f"{last['job']} {last['id']} is {last['state']}")


def _waited(service: Service, path: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return the task once it has ended, with a bar at a terminal. Ctrl-C leaves it running."""
    pause, most = LOOK_SECONDS
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        shown = bar.add_task(task["job"], total=1.0)
        while task["state"] in _OPEN:
            time.sleep(pause)
            pause = min(pause * 1.5, most)
            task = service.json("GET", path)
            bar.update(shown, completed=task["progress"], description=f"{task['job']} {task['state']}")
    return task
