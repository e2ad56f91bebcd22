"""``keyfold explain``: why a row shows what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from app.cli.client.commands.rows import Keys
from app.cli.client.commands.tables import TableName
from app.cli.client.service import Service, path_of
from app.cli.client.settings import AsJson, TokenFile, Url
from app.cli.client.shown import moment, say, say_table

commands = typer.Typer()
Told = Mapping[str, Any]


@commands.command()
def explain(
    table: TableName,
    key: Keys,
    column: Annotated[list[str] | None, typer.Option(help="a column to tell of; once for each, all without it")] = None,
    as_of: Annotated[str | None, typer.Option(help="a snapshot's number, a tag, or a time with its offset")] = None,
    before: Annotated[str | None, typer.Option(help="the records before this one, as 12.0")] = None,
    steps: Annotated[int | None, typer.Option(help="the most records to tell of, the newest ones")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Say why a row shows what it shows: its records, what each did to each column, where each value came from."""
    optional = {"asOf": as_of, "before": before, "steps": None if steps is None else str(steps)}
    params = [*(("key", one) for one in key), *(("column", one) for one in column or ())]
    params += [(name, one) for name, one in optional.items() if one is not None]
    with Service.at(url, token_file) as service:
        answer = service.ask("GET", path_of(table, "/rows:explain"), params=params)
        told = service.read(answer)
    if as_json:
        say(answer.text)
    else:
        _say(told)


def _say(told: Told) -> None:
    say(f"from {_begun(told)}")
    say_table(("record", "at", "by", "column", "before", "after", "why"), _lines(told))
    say("")
    if told["row"] is None:
        say("there is no row")
    else:
        names = ("column", "value", "from")
        say_table(names, ([one["column"], one["value"], _sources(one)] for one in told["columns"]))
    if not told["exact"]:
        say(f"not exact: {told['inexact']}")


def _begun(told: Told) -> str:
    start = told["start"]
    if not told["leftOut"]:
        return str(start["words"])
    return f"{start['words']}; records before the first one here: {told['leftOut']} (--before {told['before']})"


def _lines(told: Told) -> Iterator[list[object]]:
    """A line for each column that a step changed or that did not let it, and one at least."""
    for step in told["steps"]:
        head = _head(step)
        changed = [one for one in step["columns"] if one["before"] != one["after"] or one["late"] or one["ignored"]]
        for one in changed:
            yield [*head, one["column"], one["before"], one["after"], one["reason"]]
            head = ["", "", ""]
        if not changed:
            yield [*head, "", "", "", "" if step["what"] == "record" else step["words"]]


def _head(step: Told) -> list[object]:
    record = step["record"]
    if record is None:
        return [step["what"], moment(step["at"]), ""]
    staged = " staged" if record["state"] == "staged" else ""
    return [f"{_place(record)} {record['kind']}{staged}", moment(step["at"]), record["acceptedBy"]]


def _place(record: Told) -> str:
    return f"{record['number']}.{record['position']}"


def _sources(column: Told) -> str:
    """Where a value came from: records by batch and position, and what the steps start from."""
    older = [f"{column['leftOut']} older ones"] if column["leftOut"] else []
    start = ["the start"] if column["start"] else []
    return ", ".join([*start, *older, *map(_place, column["records"])])
