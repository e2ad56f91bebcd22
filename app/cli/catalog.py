"""``keyfold migrate``, and the catalog as other commands open it."""

from __future__ import annotations

from pathlib import Path

import typer

from app.catalog.database import CatalogDatabase
from app.cli.settings import DataFolder, settings_of

commands = typer.Typer()


@commands.command()
def migrate(data: DataFolder = None) -> None:
    """Create or upgrade the catalog database."""
    database = CatalogDatabase(settings_of(folder=data).catalog_url)
    database.migrate()
    typer.echo(f"the catalog is at revision {database.revision()}")
    database.close()


def migrated(data: Path | None) -> CatalogDatabase:
    """The catalog, the embedded one at this version's schema."""
    settings = settings_of(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    if settings.embedded_catalog:
        database.migrate()
    return database
