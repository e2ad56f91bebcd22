"""``keyfold snapshots``, ``tag`` and ``rollback``: earlier states of a table, tags that keep them, and the way back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client.endings import Exit, Failure
from app.cli.client.service import Service, path_of, segment
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import moment, report, say_json, say_table

commands = typer.Typer()
tags = typer.Typer(name="tag", help="Tags of a table: names that keep a snapshot.", no_args_is_help=True)
commands.add_typer(tags)
TagName = Annotated[str, typer.Argument(metavar="NAME", help="of the tag")]
_COLUMNS = ("snapshot", "made by", "committed", "rows", "bytes", "tags")


@commands.command("snapshots")
def list_newest(
    table: TableName,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 20,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List the snapshots of a table, newest first."""
    with Service.at(url, token_file) as service:
        page = service.json("GET", path_of(table, "/snapshots"), params={"maxResults": str(limit)})
    if as_json:
        say_json(page["snapshots"])
        return
    say_table(_COLUMNS, [_line(snapshot) for snapshot in page["snapshots"]])
    if page["nextPageToken"] is not None:
        report("there are more: --limit")


def _line(snapshot: dict[str, Any]) -> tuple[object, ...]:
    rows = "" if snapshot["rows"] is None else snapshot["rows"]
    return (
        snapshot["id"],
        snapshot["kind"],
        moment(snapshot["committedAt"]),
        rows,
        snapshot["sizeBytes"],
        ", ".join(snapshot["tags"]),
    )


@commands.command()
def rollback(
    table: TableName,
    to: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="its number, or a tag")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a rollback to a snapshot changes, ask, and roll back. The snapshots between stay: it can be undone."""
    with Service.at(url, token_file) as service:
        current = service.json("GET", path_of(table, "/snapshot"))["snapshot"]["snapshot"]["id"]
        path = path_of(table, f"/snapshots/{segment(to)}/changes")
        changes = service.json("GET", path, params={"since": str(current), "sample": "0"})
        about = "" if changes["exact"] else "about "
        counts = ", ".join(f"{about}{changes[kind]} {kind}" for kind in ("added", "changed", "removed"))
        report(f"{table} goes from snapshot {current} to what snapshot {to} showed: rows {counts}")
        if not yes and not typer.confirm("Go back?", err=True):
            raise Failure(Exit.REFUSED, "nothing is changed")
        wanted = {"snapshot": int(to)} if to.isdigit() else {"tag": to}
        made = service.json("POST", path_of(table, "/rollback"), json=wanted | {"fromSnapshot": current})
    if as_json:
        say_json(made)
        return
    report(f"it is snapshot {made['snapshot']['id']} now; batches that are undone: {made['undoneBatches']}")


@tags.command("create")
def create_tag(
    table: TableName,
    name: TagName,
    snapshot: Annotated[int | None, typer.Option(help="which is named  [default: the current one]")] = None,
    keep: Annotated[str | None, typer.Option(metavar="SPAN", help="how long: '30 d'  [default: the table's]")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a tag: it keeps a snapshot with all its rows."""
    wanted = {"tagName": name, "snapshotId": snapshot, "timeRetained": keep}
    with Service.at(url, token_file) as service:
        body = {member: value for member, value in wanted.items() if value is not None}
        made = service.json("POST", path_of(table, "/tags"), json=body)
    if as_json:
        say_json(made)
        return
    until = "" if made["expiresAt"] is None else f" until {moment(made['expiresAt'])}"
    report(f"snapshot {made['snapshot']['id']} of {table} is kept as {name}{until}")


@tags.command("list")
def list_tags(table: TableName, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """List the tags of a table, and the snapshots that they keep."""
    with Service.at(url, token_file) as service:
        names = list(service.listed(path_of(table, "/tags"), "tags"))
        tags = [service.json("GET", path_of(table, f"/tags/{segment(name)}")) for name in names]
    if as_json:
        say_json(tags)
        return
    columns = ("tag", "snapshot", "committed", "rows", "kept until")
    say_table(columns, [_tag(tag["tagName"], tag["snapshot"], tag["expiresAt"]) for tag in tags])


def _tag(name: str, kept: dict[str, object], until: int | None) -> tuple[object, ...]:
    return name, kept["id"], moment(kept["committedAt"]), kept["rows"], moment(until)  # type: ignore[arg-type]


@tags.command("delete")
def delete_tag(table: TableName, name: TagName, url: Url = None, token_file: TokenFile = None) -> None:
    """Delete a tag; its snapshot expires by the table's options again."""
    with Service.at(url, token_file) as service:
        service.ask("DELETE", path_of(table, f"/tags/{segment(name)}"))
    report(f"tag {name} of {table} is gone")
