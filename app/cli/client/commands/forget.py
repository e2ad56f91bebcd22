"""``keyfold forget`` and ``keyfold forgettings``: keys removed from all files of a table."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.client.commands.tasks import LOOK_SECONDS
from app.cli.client.endings import Exit, Failure, usage
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import report, say, say_json

commands = typer.Typer()
_NUMBERS = re.compile(r"(TINYINT|SMALLINT|INT|INTEGER|FLOAT|DOUBLE|BOOLEAN)\b")
Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY...]", help="one value per key column, in primary-key order"),
]


@commands.command()
def forget(
    table: TableName,
    key: Keys = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="a file of keys, an object of JSON a line; a command line is seen by all"),
    ] = None,
    reference: Annotated[str | None, typer.Option(help="a name of your own for the request, which is kept")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="wait until no read of the table finds them")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove keys from rows, snapshots, history and changelogs, permanently."""
    with Service.at(url, token_file) as service:
        wished = _read(service, table, key or [], keys)
        if not yes and not typer.confirm(f"Forget {len(wished)} keys of {table}? Nothing brings them back", err=True):
            raise Failure(Exit.REFUSED, "nothing is forgotten")
        body = {"keys": wished, **({} if reference is None else {"reference": reference})}
        forgetting = service.json("POST", path_of(table, "/rows:forget"), json=body)
        last = _waited(service, path_of(table, f"/forgettings/{forgetting['id']}")) if wait else forgetting
    if as_json:
        say_json(last)
    else:
        report(_line(last))


@commands.command()
def forgettings(table: TableName, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """List finished and pending removals of keys from a table, newest first."""
    with Service.at(url, token_file) as service:
        for forgetting in service.listed(path_of(table, "/forgettings"), "forgettings"):
            if as_json:
                say_json(forgetting)
                continue
            say(_line(forgetting))
            for remnant in forgetting["remnants"]:
                until = f", until {_time(remnant['until'])}" if remnant["until"] else ""
                say(f"  {remnant['count']} {remnant['kind']}: {remnant['example']}{until}")


def _read(service: Service, table: str, key: Sequence[str], file: Path | None) -> list[Any]:
    if (file is None) == (not key):
        raise usage("give a key, or --keys FILE")
    if file is not None:
        text = sys.stdin.read() if str(file) == "-" else _text_of(file)
        return list(_objects(text))
    schema = service.json("GET", path_of(table))["schema"]
    names, types = schema["primaryKeys"], {field["name"]: str(field["type"]) for field in schema["fields"]}
    if len(names) != len(key):
        raise usage(f"the primary key has {len(names)} columns ({', '.join(names)}), and here are {len(key)} values")
    return [{name: _typed(types[name], text) for name, text in zip(names, key, strict=True)}]


def _text_of(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file} cannot be read: {error}") from error


def _objects(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise usage(f"line {number} is no JSON: {error}") from error


def _typed(declared: str, text: str) -> Any:
    """Return the text as JSON if the type is not text; a malformed value is unchanged, for the service to refuse."""
    if not _NUMBERS.match(declared):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _waited(service: Service, path: str) -> dict[str, Any]:
    pause, most = LOOK_SECONDS
    while True:
        last: dict[str, Any] = service.json("GET", path)
        if last["state"] != "pending":
            return last
        time.sleep(pause)
        pause = min(pause * 1.5, most)


def _line(forgetting: dict[str, Any]) -> str:
    named = f" ({forgetting['reference']})" if forgetting["reference"] else ""
    at = forgetting["goneAt"] or forgetting["forgottenAt"]
    return f"forgetting {forgetting['id']}{named}: {forgetting['keys']} keys {forgetting['state']}" + (
        f" since {_time(at)}" if at else ""
    )


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
