"""``keyfold get``, ``put`` and ``delete``: one row."""

from __future__ import annotations

import json
import sys
import uuid
from typing import Annotated, Any

import typer

from app.cli.client.endings import usage
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import report, say, say_pairs

commands = typer.Typer()
Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="one value per key column, in primary-key order")]
Wait = Annotated[bool, typer.Option("--wait", help="wait until it is merged, a minute at most")]


@commands.command()
def get(
    table: TableName,
    key: Keys,
    columns: Annotated[str | None, typer.Option(help="those to show, with commas")] = None,
    snapshot: Annotated[str | None, typer.Option(help="a snapshot's number or a tag: the row at that time")] = None,
    merged: Annotated[bool, typer.Option("--merged", help="leave out records that are not merged yet")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the row of a key."""
    optional = {"columns": columns, "snapshot": snapshot, "consistency": "merged" if merged else None}
    params = [*(("key", text) for text in key), *((name, one) for name, one in optional.items() if one is not None)]
    with Service.at(url, token_file) as service:
        answer = service.ask("GET", path_of(table, "/rows"), params=params)
        row = service.read(answer)
    if as_json:
        say(answer.text)
    else:
        say_pairs(list(row.items()))


@commands.command()
def put(
    table: TableName,
    record: Annotated[str, typer.Argument(help="JSON of its columns, the key's too; - for standard input")],
    wait: Wait = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Post one record: the columns that it names, folded by the table's rules."""
    text = sys.stdin.read() if record == "-" else record
    _check_object(text)
    with Service.at(url, token_file) as service:
        # As it was written: numbers are not parsed and written again.
        body, headers = f'{{"records":[{text}]}}', {"Content-Type": "application/json", **_once(wait)}
        answer = service.ask("POST", path_of(table, "/batches"), content=body, headers=headers, again=True)
        _accepted(answer.text, service.read(answer), as_json)


@commands.command()
def delete(
    table: TableName,
    key: Keys,
    columns: Annotated[
        str | None,
        typer.Option(
            "--with", help='JSON with the members that the record needs in addition to its key: {"edited": "…"}'
        ),
    ] = None,
    wait: Wait = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Post a -D record for the row of a key."""
    if columns is not None:
        _check_object(columns)
    with Service.at(url, token_file) as service:
        body = {} if columns is None else {"content": columns}
        params = [("key", text) for text in key]
        headers = {"Content-Type": "application/json", **_once(wait)}
        answer = service.ask("DELETE", path_of(table, "/rows"), params=params, headers=headers, again=True, **body)
        _accepted(answer.text, service.read(answer), as_json)


def _once(wait: bool) -> dict[str, str]:
    """Return a header, with which a repeated request counts once."""
    return {"Idempotency-Key": f"keyfold-{uuid.uuid4().hex}", **({"Prefer": "wait=60"} if wait else {})}


def _check_object(text: str) -> None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise usage(f"{text[:100]!r} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise usage(f"{text[:100]!r} is no JSON object", '  → write {"id": 7, "status": "new"}')


def _accepted(text: str, batch: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say(text)
    else:
        report(f"batch {batch['number']} is {batch['state']}")
