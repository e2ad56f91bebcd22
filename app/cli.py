"""``keyfold``: serve, worker, migrate, spark-archive, token."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from app import __version__
from app.catalog.database import CatalogDatabase
from app.core.access import EVERYTHING, Role
from app.core.errors import KeyfoldError
from app.main import create_app, prepare_catalog
from app.processes import Supervisor
from app.services.tokens import create_token
from app.serving import END_SECONDS, listen, roles, server_of, work
from app.settings import Settings, is_loopback

cli = typer.Typer(
    help="Primary-key tables assembled from partial, late, repeated and out-of-order updates.", no_args_is_help=True
)
tokens = typer.Typer(help="API tokens: made, listed, revoked.", no_args_is_help=True)
cli.add_typer(tokens, name="token")

DataFolder = Annotated[Path | None, typer.Option("--data", help="folder of the embedded parts [KEYFOLD_DATA]")]


def _settings(**given: object) -> Settings:
    """The environment's settings, overridden by what the command line gives."""
    return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on [KEYFOLD_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on, 0 for a free one [KEYFOLD_PORT]")] = None,
    data: DataFolder = None,
    processes: Annotated[
        int | None, typer.Option(help="processes that answer requests; one more merges [KEYFOLD_PROCESSES]")
    ] = None,
) -> None:
    """Serve the API, with a merge worker and, unless configured otherwise, embedded Spark and SQLite."""
    settings = _settings(host=host, port=port, folder=data, processes=processes)
    _log_to_stderr(settings.log_level)
    database = CatalogDatabase(settings.catalog_url)
    prepare_catalog(database, settings)  # what is wrong is told here in one line, not as the lifespan's traceback
    database.close()
    if not is_loopback(settings.host):
        _require_token(settings)
    listeners = _listening(settings)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{shown}:{listeners[0].getsockname()[1]}"
    count = "" if len(listeners) == 1 else f" in {len(listeners)} processes"
    announced = f"Keyfold {__version__} listens on {address} (data in {settings.folder}){count}"
    if len(listeners) == 1:
        app = create_app(settings)
        typer.echo(announced)
        server_of(app, settings).run(sockets=listeners)
        return
    supervisor = Supervisor(roles(settings, listeners), settings.stop_seconds + END_SECONDS)
    typer.echo(announced)
    supervisor.run()


def _listening(settings: Settings) -> list[socket.socket]:
    try:
        return listen(settings.host, settings.port, settings.serving_processes)
    except OSError as error:
        typer.echo(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another --port", err=True
        )
        raise typer.Exit(1) from error


def _require_token(settings: Settings) -> None:
    database = CatalogDatabase(settings.catalog_url)
    try:
        if settings.embedded_catalog:
            database.migrate()
        with database.reading() as repository:
            exists = repository.tokens.exist()
    finally:
        database.close()
    if not exists:
        typer.echo(
            f"refusing to listen on {settings.host} without API tokens: anyone on the network could read and write.\n"
            "Make one first: keyfold token create NAME   (or listen on 127.0.0.1)",
            err=True,
        )
        raise typer.Exit(1)


@cli.command()
def worker(data: DataFolder = None) -> None:
    """Run merges only, beside any number of other workers and servers on one PostgreSQL catalog."""
    settings = _settings(folder=data)
    _log_to_stderr(settings.log_level)
    work(settings, 1, lambda worker: typer.echo(f"Keyfold {__version__} merges as {worker.name}"))


@cli.command()
def migrate(data: DataFolder = None) -> None:
    """Create or upgrade the catalog database."""
    database = CatalogDatabase(_settings(folder=data).catalog_url)
    database.migrate()
    typer.echo(f"the catalog is at revision {database.revision()}")
    database.close()


@cli.command()
def spark_archive() -> None:
    """Make the embedded Spark start with less work: takes a minute or two, once per Java and PySpark version."""
    from spark_jobs.archive import make_archive  # noqa: PLC0415  # PySpark takes as long to load as the rest

    typer.echo(f"the embedded Spark starts from {make_archive()}")


@tokens.command("create")
def token_create(
    name: str,
    role: Annotated[
        Role, typer.Option(help="what it may do; each role may do what the one before it may")
    ] = Role.ADMIN,
    on: Annotated[
        list[str] | None,
        typer.Option(help="what for: '*', 'shop.*' or 'shop.orders'; may be given again  [default: *]"),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="90d, 12h, or a time: 2027-01-31T18:00:00Z")] = None,
    data: DataFolder = None,
) -> None:
    """Make a token; it is shown only now."""
    database = _migrated(data)
    typer.echo(create_token(database, name, role, on or [EVERYTHING], expires))
    database.close()


@tokens.command("list")
def token_list(data: DataFolder = None) -> None:
    """List tokens by name: role, what for, and when they were made, expire and were last used."""
    database = _migrated(data)
    typer.echo("name\trole\ton\tcreated\texpires\tlast used")
    with database.reading() as repository:
        for token in repository.tokens.page():
            times = (token.created_at, token.expires_at, token.last_used_at)
            told = ["never" if time is None else time.isoformat() for time in times]
            typer.echo("\t".join([token.name, token.role, " ".join(token.scope.patterns), *told]))
    database.close()


@tokens.command("revoke")
def token_revoke(name: str, data: DataFolder = None) -> None:
    """Take a token back; running servers follow at once."""
    database = _migrated(data)
    with database.transaction() as repository:
        repository.tokens.revoke(name)
    database.close()


def _migrated(data: Path | None) -> CatalogDatabase:
    settings = _settings(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    if settings.embedded_catalog:
        database.migrate()
    return database


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel("WARNING")


def main() -> None:
    """The console script; what the caller must know is one line, not a traceback."""
    try:
        cli()
    except KeyfoldError as error:
        typer.echo(f"keyfold: {error.message}", err=True)
        raise SystemExit(1) from error
    except ValidationError as error:  # of the settings, the only thing that a command reads
        for fault in error.errors(include_url=False, include_input=False):
            name = ".".join(str(part) for part in fault["loc"]).removeprefix("KEYFOLD_")
            typer.echo(f"keyfold: KEYFOLD_{name.upper()}: {fault['msg']}", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
