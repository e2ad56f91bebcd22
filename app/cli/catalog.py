"""``keyfold migrate``, and the catalog as other commands open it."""

from __future__ import annotations

from pathlib import Path

import typer

from app.catalog.database import CatalogDatabase
from app.cli.settings import DataFolder, settings_of
from app.core.errors import Invalid
from app.files.layout import Warehouse
from app.services.operating.readiness import check_not_lost

commands = typer.Typer()


@commands.command()
def migrate(data: DataFolder = None) -> None:
    """Create or upgrade the catalog database."""
    settings = settings_of(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    check_not_lost(database, Warehouse(settings.warehouse_root))
    database.migrate()
    typer.echo(f"the catalog is at revision {database.revision()}")
    database.close()


def existing(data: Path | None) -> CatalogDatabase:
    """Return the catalog that exists, an embedded one at this version's schema. A mistyped folder must not become an
    empty catalog.

    Raise ``Invalid`` if there is none.
    """
    settings = settings_of(folder=data)
    if settings.embedded_catalog and not (settings.folder / "catalog.sqlite").exists():
        raise Invalid(
            f"there is no catalog in {settings.folder.resolve()}, and none was made: say by --data or KEYFOLD_DATA"
            " where the service keeps its data, or by KEYFOLD_DATABASE_URL"
        )
    return migrated(data)


def migrated(data: Path | None) -> CatalogDatabase:
    """Return the catalog, an embedded one at this version's schema, and made if there is none."""
    settings = settings_of(folder=data)
    database = CatalogDatabase(settings.catalog_url)
    if settings.embedded_catalog:
        check_not_lost(database, Warehouse(settings.warehouse_root))
        database.migrate()
    return database
