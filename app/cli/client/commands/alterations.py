"""``keyfold table alter`` and ``keyfold table copy``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client.endings import usage
from app.cli.client.service import Service, named, path_of
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import many, report, say_json
from keyfold_client.names import QUOTED, leading_names
from keyfold_client.sync.table import Table

Change = dict[str, Any]
Words = list[str] | None


def alter(
    table: TableName,
    renamed: Annotated[Words, typer.Option("--rename", metavar="OLD=NEW", help="a column's new name")] = None,
    added: Annotated[Words, typer.Option("--add", metavar="'NAME TYPE'", help="a column, last and nullable")] = None,
    types: Annotated[Words, typer.Option("--type", metavar="'NAME TYPE'", help="a wider type of a column")] = None,
    dropped: Annotated[Words, typer.Option("--drop", metavar="NAME", help="a column of no key")] = None,
    unset: Annotated[Words, typer.Option("--unset", metavar="OPTION", help="an option back to its default")] = None,
    options: Annotated[Words, typer.Option("--set", metavar="OPTION=VALUE", help="an option of the table")] = None,
    comment: Annotated[str | None, typer.Option(help="the table's comment")] = None,
    check: Annotated[bool, typer.Option("--check", help="change nothing; report the faults and warnings")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Change columns and options, all or nothing: what is renamed first, then what is added, typed, dropped, set.

    Each option may be given again. A field in a ROW is column.field.
    """
    changes = [
        *(_renamed(text) for text in renamed or ()),
        *(_typed(text, "--add", "addColumn", "dataType") for text in added or ()),
        *(_typed(text, "--type", "updateColumnType", "newDataType") for text in types or ()),
        *({"action": "dropColumn", "fieldNames": _path(text, "--drop")} for text in dropped or ()),
        *({"action": "removeOption", "key": option} for option in unset or ()),
        *(_option(option) for option in options or ()),
        *([{"action": "updateComment", "comment": comment}] if comment is not None else []),
    ]
    if not changes:
        raise usage("nothing to change", "  → keyfold table alter --help lists what can be changed")
    with Service.at(url, token_file) as service:
        params = {"validateOnly": "true"} if check else {}
        answer = service.json("POST", path_of(table), json={"changes": changes}, params=params)
    if as_json:
        say_json(answer)
        return
    for warning in answer["warnings"]:
        report(f"warning: {warning['message']}")
        report(f"  → {warning['fix']}")
    report("the changes can be made" if check else f"table {table} has schema {answer['schemaId']} now")


def _path(text: str, option: str) -> list[str]:
    names, rest = leading_names(text)
    if not names or rest:
        raise usage(f"{option} {text}: a column's name is expected, or column.field; {QUOTED}")
    return names


def _renamed(text: str) -> Change:
    path, rest = leading_names(text)
    new, behind = leading_names(rest.removeprefix("="))
    if not path or not rest.startswith("=") or len(new) != 1 or behind:
        raise usage(f"--rename {text}: write OLD=NEW; {QUOTED}")
    return {"action": "renameColumn", "fieldNames": path, "newName": new[0]}


def _typed(text: str, option: str, action: str, member: str) -> Change:
    path, data_type = leading_names(text)
    if not path or not data_type.startswith(" ") or not data_type.strip():
        raise usage(f"{option} {text}: write the name and the type, like {option} 'note STRING'; {QUOTED}")
    return {"action": action, "fieldNames": path, member: data_type.strip()}


def _option(text: str) -> Change:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise usage(f"--set {text}: write OPTION=VALUE")
    return {"action": "setOption", "key": key.strip(), "value": value.strip()}


def copy(
    table: TableName,
    new: Annotated[str, typer.Argument(metavar="DATABASE.TABLE", help="the table to create")],
    with_rows: Annotated[bool, typer.Option("--rows", help="post its rows to the new one, too, as they show")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Create a table with the columns, keys and options of another one."""
    database, name = named(new)
    with Service.at(url, token_file) as service:
        details = service.json("GET", path_of(table))
        body = {"identifier": {"database": database, "object": name}, "schema": details["schema"]}
        service.ask("POST", path_of(new).rpartition("/")[0], json=body)
        report(f"table {new} is made")
        if with_rows:
            snapshot = Table(service, *named(table)).scan()
            stored = Table(service, database, name).upsert(snapshot, idempotency_key=f"copy of {details['id']}")
            report(f"{many(stored.records, 'row')} in {many(len(stored.batches), 'batch')}")
