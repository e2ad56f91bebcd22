"""Migrations of the catalog: its present one, and the missing ones.

Only a migration loads Alembic. A process that finds the catalog at its newest migration saves those 8 MiB.
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from app.core.errors import Unavailable

_MIGRATIONS: Final = Path(__file__).resolve().parents[3] / "migrations"  # in the folder that holds app/
_VERSION: Final = sa.table("alembic_version", sa.column("version_num", sa.String))  # Alembic's own
_turn = threading.Lock()  # Alembic keeps its context in module globals


@cache
def newest_migration() -> str:
    """Return the newest migration that this program has: the names of the files begin with their numbers."""
    return max(path.name for path in (_MIGRATIONS / "versions").glob("[0-9]*.py")).partition("_")[0]


def migration_of(connection: sa.Connection) -> str | None:
    """Return the migration that a catalog is at, None if it has none."""
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    version: str | None = connection.execute(sa.select(_VERSION.c.version_num)).scalar()
    return version


def upgrade(connection: sa.Connection, revision: str) -> None:
    """Run the migrations up to ``revision``. Raise ``Unavailable`` if a newer program has migrated it already."""
    from alembic import command  # noqa: PLC0415  # see above
    from alembic.config import Config  # noqa: PLC0415  # the same
    from alembic.util import CommandError  # noqa: PLC0415  # the same

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        with _turn:
            command.upgrade(config, revision)
    except CommandError as error:
        raise Unavailable(f"the catalog cannot be migrated by this version of Keyfold: {error}") from error
