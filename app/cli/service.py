"""``keyfold serve`` and ``keyfold worker``."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app import __version__
from app.catalog.database import CatalogDatabase
from app.cli.modes import how_to_close
from app.cli.settings import DataFolder, LogAs, settings_of, warn_of_unknown
from app.main import create_app, prepare_catalog
from app.server.processes import Supervisor, status_of
from app.server.serving import END_SECONDS, certificate_of, listen, roles, run_server, work
from app.services.operating.audit_log import AuditLog
from app.settings import Settings
from app.spark import SPARK
from app.telemetry.exposition import exposed
from app.telemetry.logs import LogFormat, log_to_stderr
from app.telemetry.metrics import Metrics
from app.telemetry.port import metrics_port as metrics_at

logger = logging.getLogger(__name__)
commands = typer.Typer()


@commands.command()
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
    settings = settings_of(
        host=host,
        port=port,
        folder=data,
        processes=processes,
        tls_cert=tls_cert,
        tls_key=tls_key,
        log_format=log_format,
    )
    log_to_stderr(settings.log_level, settings.log_format)
    warn_of_unknown(os.environ)
    _check(settings)
    listeners = _listening(settings)
    announcement = _announcement(settings, listeners)
    announce = logger.info if settings.log_format is LogFormat.JSON else typer.echo
    # The server closes everything at SIGTERM, then raises the signal again: exit with its status, not by the signal.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(status_of(number)))
    if len(listeners) == 1:
        app = create_app(settings)
        announce(announcement)
        run_server(app, settings, listeners[0])
        return
    supervisor = Supervisor(roles(settings, listeners), settings.stop_seconds + END_SECONDS)
    announce(announcement)
    supervisor.run()


def _announcement(settings: Settings, listeners: Sequence[socket.socket]) -> str:
    """Return the line that says where the service listens, with the port that it took."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    address = f"{scheme}://{host}:{listeners[0].getsockname()[1]}"
    count = "" if len(listeners) == 1 else f"in {len(listeners)} processes "
    console = f"console {address}/, " if settings.console else ""
    places = f"{console}API docs {address}/docs, data in {settings.folder}"
    return f"Keyfold {__version__} listens on {address} {count}({places})"


def _check(settings: Settings) -> None:
    """Raise for a fault of the settings now, which is shown in one line. Later the lifespan would show a traceback."""
    _warn_of_open_folders(settings)
    database = CatalogDatabase(settings.catalog_url)
    prepare_catalog(database, settings)
    database.close()
    if settings.audit_log is not None:
        AuditLog(settings.audit_log).close()
    certificate = certificate_of(settings)
    if certificate is not None:
        certificate.context()
    if settings.asks_for_tokens and settings.oidc_issuer is None:
        _require_token(settings)


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


@commands.command()
def worker(
    data: DataFolder = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="port on 127.0.0.1 for /metrics [KEYFOLD_WORKER_METRICS_PORT]")
    ] = None,
    log_format: LogAs = None,
) -> None:
    """Run merges only; several workers and servers may share one PostgreSQL catalog."""
    settings = settings_of(folder=data, log_format=log_format, worker_metrics_port=metrics_port)
    log_to_stderr(settings.log_level, settings.log_format)
    warn_of_unknown(os.environ)
    _warn_of_open_folders(settings)
    metrics = Metrics(processes=("worker", SPARK))
    metrics.take("worker")
    with _served_metrics(settings, metrics) as place:
        work(settings, 1, lambda worker: typer.echo(f"Keyfold {__version__} merges as {worker.name}{place}"), metrics)


@contextmanager
def _served_metrics(settings: Settings, metrics: Metrics) -> Iterator[str]:
    """Serve the metrics on their port, if one is set; yield a line that names it."""
    port = settings.worker_metrics_port
    if port is None:
        yield ""
        return
    with ExitStack() as stack:
        try:
            taken = stack.enter_context(metrics_at(port, partial(exposed, metrics, ())))
        except OSError as error:
            typer.echo(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another --metrics-port", err=True)
            raise typer.Exit(1) from error
        yield f"\nIts metrics are at http://127.0.0.1:{taken}/metrics"
