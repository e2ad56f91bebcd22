"""Runs migrations for ``CatalogDatabase.migrate()``, or for the ``alembic`` command while a new one is written."""

from __future__ import annotations

import os

import sqlalchemy as sa
from alembic import context

from app.catalog.shared.models import metadata


def run(connection: sa.Connection) -> None:
    """Runs the migrations that Alembic's command asks for. Batch mode is how SQLite alters tables."""
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if context.is_offline_mode():
    raise SystemExit("Keyfold migrates a catalog that it is connected to; --sql is not supported")
if given is not None:
    run(given)
else:
    engine = sa.create_engine(os.environ["KEYFOLD_DATABASE_URL"])
    with engine.begin() as opened:
        run(opened)
    engine.dispose()
