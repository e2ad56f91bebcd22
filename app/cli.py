"""``keyfold``: serve, worker, migrate, verify, backup, restore, spark-archive, token."""

from __future__ import annotations

import getpass
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from app import __version__
from app.catalog.database import CatalogDatabase
from app.core.access import EVERYTHING, Role
from app.core.errors import Invalid, KeyfoldError
from app.core.table.damage import DamagedFile
from app.main import create_app, prepare_catalog
from app.processes import Supervisor
from app.services.audit_log import AuditLog
from app.services.backups import back_up
from app.services.backups import restore as put_back
from app.services.scrubs import verify as read_and_compare
from app.services.tokens import Wish, make_token, told_of
from app.serving import END_SECONDS, certificate_of, listen, roles, run_server, work
from app.settings import Settings
from app.storage.backup_folder import BackupFolder
from app.storage.layout import Warehouse
from app.storage.modes import how_to_close
from app.storage.object_stores import is_object_store
from app.telemetry.logs import LogFormat, log_to_stderr
from app.telemetry.metrics import Metrics
from app.worker import SPARK

logger = logging.getLogger(__name__)
cli = typer.Typer(
    help="Primary-key tables assembled from partial, late, repeated and out-of-order updates.", no_args_is_help=True
)
tokens = typer.Typer(help="API tokens: made, listed, revoked.", no_args_is_help=True)
cli.add_typer(tokens, name="token")

LogAs = Annotated[LogFormat | None, typer.Option("--log-format", help="text or json [KEYFOLD_LOG_FORMAT]")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="folder of the embedded parts [KEYFOLD_DATA]")]


def _settings(**given: object) -> Settings:
    """The environment's settings, overridden by what the command line gives. From here on no file is made that others
    may read.
    """
    settings = Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    os.umask(settings.umask)
    return settings


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on [KEYFOLD_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on, 0 for a free one [KEYFOLD_PORT]")] = None,
    data: DataFolder = None,
    processes: Annotated[
        int | None, typer.Option(help="processes that answer requests; one more merges [KEYFOLD_PROCESSES]")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate chain, for TLS [KEYFOLD_TLS_CERT]")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its private key [KEYFOLD_TLS_KEY]")] = None,
    log_format: LogAs = None,
) -> None:
    """Serve the API, with a merge worker and, unless configured otherwise, embedded Spark and SQLite."""
    settings = _settings(
        host=host,
        port=port,
        folder=data,
        processes=processes,
        tls_cert=tls_cert,
        tls_key=tls_key,
        log_format=log_format,
    )
    log_to_stderr(settings.log_level, settings.log_format)
    _check(settings)
    listeners = _listening(settings)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    address = f"{scheme}://{shown}:{listeners[0].getsockname()[1]}"
    count = "" if len(listeners) == 1 else f" in {len(listeners)} processes"
    announced = f"Keyfold {__version__} listens on {address} (data in {settings.folder}){count}"
    if len(listeners) == 1:
        app = create_app(settings)
        typer.echo(announced)
        run_server(app, settings, listeners[0])
        return
    supervisor = Supervisor(roles(settings, listeners), settings.stop_seconds + END_SECONDS)
    typer.echo(announced)
    supervisor.run()


def _check(settings: Settings) -> None:
    """What is wrong is told here in one line, not as the lifespan's traceback."""
    _warn_of_open_folders(settings)
    if settings.workers:
        _require_spark(settings)
    database = CatalogDatabase(settings.catalog_url)
    prepare_catalog(database, settings)
    database.close()
    if settings.audit_log is not None:
        AuditLog(settings.audit_log).close()
    certificate = certificate_of(settings)
    if certificate is not None:
        certificate.context()
    if settings.asks_for_tokens:
        _require_token(settings)


def _require_spark(settings: Settings) -> None:
    if is_object_store(settings.warehouse_root) and settings.spark_remote is None:
        raise Invalid(
            "the embedded Spark cannot read object stores, so nothing would ever be merged: set KEYFOLD_SPARK_REMOTE to"
            " a server with hadoop-aws, or KEYFOLD_WORKERS=0 and run keyfold worker elsewhere"
        )


def _warn_of_open_folders(settings: Settings) -> None:
    for folder in {settings.folder.resolve(), Path(settings.warehouse_root)}:  # a URI is no folder here
        closing = how_to_close(folder, settings.umask)
        if closing is not None:
            logger.warning("%s is open to other users of this machine; run: %s", folder, closing)


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
            "Make one first: keyfold token create NAME   (or listen on 127.0.0.1, without KEYFOLD_TRUSTED_PROXIES)",
            err=True,
        )
        raise typer.Exit(1)


@cli.command()
def worker(data: DataFolder = None, log_format: LogAs = None) -> None:
    """Run merges only, beside any number of other workers and servers on one PostgreSQL catalog."""
    settings = _settings(folder=data, log_format=log_format)
    log_to_stderr(settings.log_level, settings.log_format)
    _warn_of_open_folders(settings)
    _require_spark(settings)
    metrics = Metrics(processes=("worker", SPARK))
    metrics.take("worker")
    work(settings, 1, lambda worker: typer.echo(f"Keyfold {__version__} merges as {worker.name}"), metrics)


@cli.command()
def migrate(data: DataFolder = None) -> None:
    """Create or upgrade the catalog database."""
    database = CatalogDatabase(_settings(folder=data).catalog_url)
    database.migrate()
    typer.echo(f"the catalog is at revision {database.revision()}")
    database.close()


@cli.command()
def verify(
    data: DataFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of lines")] = False,
) -> None:
    """Read every file that the catalog names and list what is damaged or missing; status 1 if anything is."""
    settings = _settings(folder=data)
    log_to_stderr("CRITICAL")  # the log would say the same again
    database = _migrated(data)
    files = size = 0
    damaged: list[DamagedFile] = []
    for finding in read_and_compare(database, Warehouse(settings.warehouse_root)):
        files, size = files + 1, size + finding.file.size_bytes
        if finding.damage is not None:
            damaged.append(finding.damage)
            if not as_json:
                typer.echo(finding.damage.message)
    database.close()
    if as_json:
        typer.echo(json.dumps({"files": files, "bytes": size, "damaged": [one.told for one in damaged]}))
    else:
        typer.echo(f"{files} files of {size} bytes read, {len(damaged)} damaged or missing")
    if damaged:
        raise typer.Exit(1)


@cli.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="where backups are kept, each file of them once")],
    data: DataFolder = None,
    keep: Annotated[int | None, typer.Option(min=1, help="backups to keep; older ones are removed")] = None,
) -> None:
    """Back up catalog and files while the service runs; what an earlier backup has is not copied again."""
    settings = _settings(folder=data)
    database, target = CatalogDatabase(settings.catalog_url), BackupFolder(folder)
    done = back_up(database, Warehouse(settings.warehouse_root), target, __version__, _counting("copied"))
    database.close()
    for damage in done.damaged:
        typer.echo(damage.message, err=True)
    if keep is not None:
        target.forget_all_but(keep)
    typer.echo(f"backup {done.name}: {done.files} files, {done.copied} of them new ({done.copied_bytes} bytes)")
    if done.damaged:
        typer.echo(f"{len(done.damaged)} files are damaged or missing and in no backup: see keyfold verify", err=True)
        raise typer.Exit(1)


@cli.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="where the backups are")],
    data: DataFolder = None,
    name: Annotated[str | None, typer.Option("--backup", help="which one; default: the newest")] = None,
) -> None:
    """Put a backup back, into a data folder (or database and warehouse) that holds nothing yet."""
    settings = _settings(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    warehouse = Warehouse(settings.warehouse_root)
    head = put_back(BackupFolder(folder), name, database, warehouse, _counting("put back"))
    database.close()
    typer.echo(f"backup {head.name} is restored (taken by Keyfold {head.version}); start with: keyfold serve")


def _counting(what: str) -> Callable[[str], None]:
    """Says every thousand files how far it is."""
    number = 0

    def told(_path: str) -> None:
        nonlocal number
        number += 1
        if number % 1000 == 0:
            typer.echo(f"{number} files {what}", err=True)

    return told


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
    database, audit = _migrated(data), _audit_log(data)
    with database.transaction() as repository:
        made = make_token(repository, Wish(name, role, on or [EVERYTHING], expires))
    typer.echo(made.secret)
    _tell(audit, "createToken", **told_of(made.token))
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
    database, audit = _migrated(data), _audit_log(data)
    with database.transaction() as repository:
        repository.tokens.revoke(name)
    _tell(audit, "revokeToken", name=name)
    database.close()


def _audit_log(data: Path | None) -> AuditLog | None:
    """The audit log, if there is one, opened before anything is done. What a command prints is its standard output."""
    destination = _settings(folder=data).audit_log
    return None if destination is None else AuditLog("stderr" if destination == "stdout" else destination)


def _tell(audit: AuditLog | None, operation: str, **members: object) -> None:
    """Tell the audit log what this machine's user did at the command line."""
    if audit is not None:
        audit.write(user=_user(), operation=operation, **members, outcome="done")
        audit.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that has no name
        return f"uid {os.getuid()}"


def _migrated(data: Path | None) -> CatalogDatabase:
    settings = _settings(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    if settings.embedded_catalog:
        database.migrate()
    return database


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
