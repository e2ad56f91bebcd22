"""``keyfold backup`` and ``keyfold restore``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app import __version__
from app.catalog.database import CatalogDatabase
from app.cli.catalog import existing
from app.cli.settings import DataFolder, settings_of
from app.files.layout import Warehouse
from app.services.upkeep.backups import back_up
from app.services.upkeep.backups import restore as put_back
from app.storage.backup_folder import BackupFolder

commands = typer.Typer()


@commands.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="folder that keeps the backups")],
    data: DataFolder = None,
    keep: Annotated[int | None, typer.Option(min=1, help="backups to keep; older ones are removed")] = None,
) -> None:
    """Back up the catalog and its files while the service runs. Files of earlier backups are not copied again."""
    settings = settings_of(folder=data)
    database, target = existing(data), BackupFolder(folder)
    done = back_up(database, Warehouse(settings.warehouse_root), target, __version__, _counting("copied"), keep)
    database.close()
    for damage in done.damaged:
        typer.echo(damage.message, err=True)
    typer.echo(f"backup {done.name}: {done.files} files, {done.copied} of them new ({done.copied_bytes} bytes)")
    if done.damaged:
        typer.echo(f"{len(done.damaged)} files are damaged or missing and in no backup: see keyfold verify", err=True)
        raise typer.Exit(1)


@commands.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="where the backups are")],
    data: DataFolder = None,
    name: Annotated[str | None, typer.Option("--backup", help="name of the backup; default: the newest")] = None,
) -> None:
    """Restore a backup into an empty data folder, or an empty database and warehouse."""
    settings = settings_of(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    warehouse = Warehouse(settings.warehouse_root)
    head = put_back(BackupFolder(folder), name, database, warehouse, _counting("put back"))
    database.close()
    typer.echo(f"backup {head.name} is restored (taken by Keyfold {head.version}); start with: keyfold serve")


def _counting(what: str) -> Callable[[str], None]:
    """Return a function that counts files, and reports every thousandth."""
    number = 0

    def count(_path: str) -> None:
        nonlocal number
        number += 1
        if number % 1000 == 0:
            typer.echo(f"{number} files {what}", err=True)

    return count
