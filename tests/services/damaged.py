"""Files of a table's folder, damaged and restored as an operator would find and restore them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.catalog.database import CatalogDatabase
from app.core.table.history import Table
from app.core.table.upkeep.damage import Damage
from app.files.layout import Warehouse


def files_in(warehouse: Warehouse, table_id: str, folder: str) -> list[Path]:
    """The Parquet files of a table in ``staging``, ``runs`` or ``changelog``, oldest first."""
    found = Path(warehouse.path(table_id, folder)).rglob("*.parquet")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def flip(path: Path, place: int = -20) -> None:
    """One bit of the file, by default in its footer."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@contextmanager
def flipped(path: Path, place: int = -20) -> Iterator[None]:
    """One bit of the file is another one for a while; then the file is put back in its place."""
    flip(path, place)
    yield
    flip(path, place)


@contextmanager
def gone(path: Path) -> Iterator[None]:
    """The file is elsewhere for a while."""
    backup = path.with_suffix(".backup")
    shutil.move(path, backup)
    yield
    shutil.move(backup, path)


def damage_of(database: CatalogDatabase, table: Table) -> list[Damage]:
    """What is known to be wrong with a table's files."""
    with database.reading() as repository:
        return repository.damage.page(table.id, limit=100)
