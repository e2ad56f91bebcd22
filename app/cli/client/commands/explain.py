"""``keyfold explain`` and ``simulate``: why a row has its values, and the effect of records on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.client.commands.rows import Keys
from app.cli.client.commands.tables import read_text
from app.cli.client.endings import usage
from app.cli.client.service import CATALOG, Service, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import moment, plain, say, say_table

commands = typer.Typer()
JsonObject = Mapping[str, Any]


@commands.command()
def explain(
    table: TableName,
    key: Keys,
    column: Annotated[list[str] | None, typer.Option(help="a column to explain; once for each, all without it")] = None,
    as_of: Annotated[str | None, typer.Option(help="a snapshot's number, a tag, or a time with its offset")] = None,
    before: Annotated[str | None, typer.Option(help="the records before this one, as 12.0")] = None,
    steps: Annotated[int | None, typer.Option(help="the most records to explain, the newest ones")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Explain a row: its records, their effect on each column, and the source of each value."""
    optional = {"asOf": as_of, "before": before, "steps": None if steps is None else str(steps)}
    params = [*(("key", text) for text in key), *(("column", text) for text in column or ())]
    params += [(name, one) for name, one in optional.items() if one is not None]
    with Service.at(url, token_file) as service:
        answer = service.ask("GET", path_of(table, "/rows:explain"), params=params)
        explained = service.read(answer)
    if as_json:
        say(answer.text)
    else:
        _say(explained)


def _say(explained: JsonObject) -> None:
    say(f"from {_begun(explained)}")
    say_table(("record", "at", "by", "column", "before", "after", "why"), _lines(explained))
    say("")
    if explained["row"] is None:
        say("there is no row")
    else:
        names = ("column", "value", "from")
        say_table(names, ([column["column"], column["value"], _sources(column)] for column in explained["columns"]))
    if not explained["exact"]:
        say(f"not exact: {explained['inexact']}")


def _begun(explained: JsonObject) -> str:
    start = explained["start"]
    if not explained["leftOut"]:
        return str(start["words"])
    return (
        f"{start['words']}; records before the first one here: {explained['leftOut']} (--before {explained['before']})"
    )


def _lines(explained: JsonObject) -> Iterator[list[object]]:
    """Yield a line for each column that a step changed, or whose rule kept its value; at least one."""
    for step in explained["steps"]:
        head = _head(step)
        changed = [
            column
            for column in step["columns"]
            if column["before"] != column["after"] or column["late"] or column["ignored"]
        ]
        for column in changed:
            yield [*head, column["column"], column["before"], column["after"], column["reason"]]
            head = ["", "", ""]
        if not changed:
            yield [*head, "", "", "", "" if step["what"] == "record" else step["words"]]


def _head(step: JsonObject) -> list[object]:
    record = step["record"]
    if record is None:
        return [step["what"], moment(step["at"]), ""]
    staged = " staged" if record["state"] == "staged" else ""
    return [f"{_place(record)} {record['kind']}{staged}", moment(step["at"]), record["acceptedBy"]]


def _place(record: JsonObject) -> str:
    return f"{record['number']}.{record['position']}"


def _sources(column: JsonObject) -> str:
    """Return the sources of a value: records by batch and position, and the start."""
    older = [f"{column['leftOut']} older ones"] if column["leftOut"] else []
    start = ["the start"] if column["start"] else []
    return ", ".join([*start, *older, *map(_place, column["records"])])


@commands.command()
def simulate(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATABASE.TABLE] FILE", help="records, a JSON list or one a line; - for standard input"
        ),
    ],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="a CREATE TABLE in place of the table")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Fold records without storing them: show each row before and after, and the effect of every record."""
    if len(words) != (2 if file is None else 1):
        raise usage("give DATABASE.TABLE and FILE; or --file with a CREATE TABLE, and FILE")
    if file is None:
        path, members = path_of(words[0], "/rows:simulate"), {}
    else:
        path, members = f"{CATALOG.rpartition('/')[0]}/merges:simulate", {"schema": _declared(file)}
    with Service.at(url, token_file) as service:
        body = _body(Path(words[-1]), members)
        headers = {"Content-Type": "application/json"}
        answer = service.ask("POST", path, content=body, headers=headers, again=True)
        simulated = service.read(answer)
    if as_json:
        say(answer.text)
        return
    for place, row in enumerate(simulated["rows"]):
        if place:
            say("")
        _say_row(row)


def _body(records: Path, members: Mapping[str, Any]) -> bytes:
    """Return the body of the request. Numbers are not parsed, so they stay as they are written."""
    text = read_text(records).strip()
    if not text.startswith("["):
        text = f"[{','.join(line for line in text.splitlines() if line.strip())}]"
    opened = json.dumps(members)[:-1]
    return f'{opened}{", " if members else ""}"records": {text}}}'.encode()


def _declared(file: Path) -> Any:
    """Return the schema of the one statement in a file."""
    from app.core.ddl.reader import read_tables  # noqa: PLC0415  # the grammar of statements takes long to load
    from app.core.errors import KeyfoldError  # noqa: PLC0415  # the same

    try:
        statements = read_tables(read_text(file))
    except KeyfoldError as error:
        raise usage(f"{file}: {error.message}") from error
    if len(statements) != 1:
        raise usage(f"{file} has {len(statements)} statements: one CREATE TABLE is expected")
    return statements[0].body


def _say_row(row: Mapping[str, Any]) -> None:
    say(f"key {plain(row['key'])}")
    say_table(("record", "kind", "column", "before", "after", "why"), _changes(row["steps"]))
    say(f"before  {plain(row['before']) or 'no row'}")
    say(f"after   {plain(row['after']) or 'no row'}")


def _changes(steps: list[Any]) -> Iterator[list[object]]:
    """Yield a line for each column that a record changed, at least one. Records count from 1."""
    for step in steps:
        head: list[object] = [step["record"] + 1, step["kind"]]
        changed = [column for column in step["columns"] if column["before"] != column["after"]]
        for column in changed:
            yield [*head, column["column"], column["before"], column["after"], column["reason"]]
            head = ["", ""]
        if not changed:
            yield [*head, "", "", "", step["ignored"] or "changes nothing"]
