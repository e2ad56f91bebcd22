"""Whether what requests need answers."""

from __future__ import annotations

from app.catalog.database import CatalogDatabase
from app.core.errors import Unavailable


def catalog_ready(database: CatalogDatabase) -> bool:
    """Whether the catalog answers and is at this program's newest migration."""
    try:
        database.ping()
        return database.is_current()
    except Unavailable:
        return False
