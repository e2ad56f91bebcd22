"""Checksums of what the catalog says of runs, snapshots, batches and schemas.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TABLES = ("table_schemas", "batches", "runs", "snapshots")


def upgrade() -> None:
    """What is there has none, and is not checked."""
    for name in _TABLES:
        op.add_column(name, sa.Column("checksum", sa.String()))


def downgrade() -> None:
    """Nothing is checked any more."""
    for name in _TABLES:
        op.drop_column(name, "checksum")
