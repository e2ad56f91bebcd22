"""``keyfold table``: create from SQL, list, show, explain, drop."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.client.commands import alterations
from app.cli.client.endings import Exit, Failure, usage
from app.cli.client.service import CATALOG, Service, path_of, segment
from app.cli.client.settings import AsJson, TableName, TokenFile, Url
from app.cli.client.shown import moment, report, say, say_json, say_pairs, say_table
from app.core.access import pattern_of
from app.core.types.dialects import Dialect

commands = typer.Typer(name="table", help="Create, show, alter, copy and drop tables.", no_args_is_help=True)
commands.command("alter")(alterations.alter)
commands.command("copy")(alterations.copy)


def read_text(file: Path) -> str:
    """Return the text of a file, or of standard input for ``-``. Raise ``Failure`` if it cannot be read."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise usage(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise usage(f"{file} is no text in UTF-8: byte {error.start}") from error


@commands.command("create")
def create(
    source: Annotated[
        str | None, typer.Argument(metavar="SCHEMA.TABLE", help="with --from-postgres: the table to write down")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="CREATE TABLE statements; - for standard input")
    ] = None,
    database: Annotated[str | None, typer.Option("--database", "-d", help="where the tables are made")] = None,
    from_postgres: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="create nothing; print the statement for change events of a table there"),
    ] = None,
    dialect: Annotated[
        Dialect | None, typer.Option(help="whose SQL it is; recognized by its words if left out")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="create nothing; report the faults and warnings")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Create the tables of CREATE TABLE statements in Flink's or Spark's SQL, all or none."""
    makes = (file, database, dialect, *((True,) if check or as_json else ()))
    if from_postgres is not None and source is not None and not any(makes):
        from app.cli.client.postgres import source_table  # noqa: PLC0415  # the rules of tables take long to load

        print(source_table(from_postgres, source).ddl, end="")  # noqa: T201  # it has several lines
        return
    if file is None or database is None or source is not None or from_postgres is not None:
        raise usage("give --file and --database, or --from-postgres DSN and SCHEMA.TABLE alone")
    body = {"ddl": read_text(file), **({"dialect": dialect.value} if dialect else {})}
    params = {"validateOnly": "true"} if check else {}
    path = f"{CATALOG}/{segment(database)}/tables:fromDdl"
    with Service.at(url, token_file) as service:
        answer = service.json("POST", path, json=body, params=params)
    if as_json:
        say_json(answer)
        return
    for table in answer.get("tables", [answer]):
        for warning in table["warnings"]:
            report(f"warning: {warning['message']}")
            report(f"  → {warning['fix']}")
        if "created" in table:
            made = "is made" if table["created"] else "was there already"
            report(f"table {pattern_of(table['database'], table['name'])} {made}")
    if check:
        report("the statements can be carried out")


@commands.command("list")
def list_all(
    database: Annotated[str | None, typer.Argument(help="of one database; else of all")] = None,
    also: Annotated[str | None, typer.Option("--database", "-d", help="the same")] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List the tables, each as DATABASE.TABLE."""
    if database is not None and also is not None:
        raise usage("name the database once")
    database = database or also
    with Service.at(url, token_file) as service:
        names = list(_names(service, database))
    if as_json:
        say_json([{"database": one, "name": name} for one, name in names])
        return
    for name in names:
        say(pattern_of(*name))


def _names(service: Service, database: str | None) -> Iterator[tuple[str, str]]:
    for database_name in service.listed(CATALOG, "databases") if database is None else [database]:
        for name in service.listed(f"{CATALOG}/{segment(database_name)}/tables", "tables"):
            yield database_name, name


@commands.command("show")
def show(table: TableName, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show a table's columns and options."""
    with Service.at(url, token_file) as service:
        details = service.json("GET", path_of(table))
    if as_json:
        say_json(details)
        return
    schema = details["schema"]
    say_table(("column", "type", "key", "comment"), [_column(field, schema) for field in schema["fields"]])
    say("")
    say_pairs(
        [
            *schema["options"].items(),
            ("(id)", details["id"]),
            ("(files)", details["path"]),
            ("(created)", moment(details["createdAt"])),
        ]
    )


def _column(field: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[object, ...]:
    name = field["name"]
    key = "primary" if name in schema["primaryKeys"] else ""
    partition = "partition" if name in schema["partitionKeys"] else ""
    return name, _in_sql(field["type"]), " ".join(filter(None, (key, partition))), field.get("description")


def _in_sql(data_type: str | Mapping[str, Any]) -> str:
    """Return a type in SQL; nested types are JSON in the answer."""
    if isinstance(data_type, str):
        return data_type
    from app.core.types.parser import parse_type  # noqa: PLC0415  # the grammar of types takes long to load

    return parse_type(data_type).sql


@commands.command("rules")
def rules(table: TableName, url: Url = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Show the table's rules in words: columns, row kinds, warnings."""
    with Service.at(url, token_file) as service:
        answer = service.json("GET", path_of(table, "/rules"))
    if as_json:
        say_json(answer)
        return
    say(answer["row"])
    say(answer["order"])
    say("")
    say_table(
        ("column", "rule", "default"),
        [(column["column"], column["rule"], column["default"]) for column in answer["columns"]],
    )
    say("")
    say_table(
        ("kind", "treatment", "because"),
        [(kind["kind"], kind["treatment"], kind["reason"]) for kind in answer["kinds"]],
    )
    for warning in answer["warnings"]:
        report(f"warning: {warning['message']}")


@commands.command("ddl")
def ddl(
    table: TableName,
    dialect: Annotated[Dialect, typer.Option(help="whose SQL")] = Dialect.FLINK,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the CREATE TABLE statement of the table."""
    with Service.at(url, token_file) as service:
        answer = service.json("GET", path_of(table, "/ddl"), params={"dialect": dialect.value})
    if as_json:
        say_json(answer)
    else:
        print(answer["ddl"])  # noqa: T201  # it has several lines


@commands.command("drop")
def drop(
    table: TableName,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Drop a table, its rows, its history and its files."""
    with Service.at(url, token_file) as service:
        service.ask("GET", path_of(table))  # a missing table is reported before the question
        if not yes and not typer.confirm(f"Drop {table} with all of its rows? Nothing brings it back", err=True):
            raise Failure(Exit.REFUSED, "nothing is dropped")
        service.ask("DELETE", path_of(table))
    report(f"table {table} is dropped")
