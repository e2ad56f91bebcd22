"""Versions of Delta logs.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
_UNWRITTEN = sa.text("written_at IS NULL")


def upgrade() -> None:
    """No table publishes so far."""
    op.create_table(
        "delta_versions",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("as_of", sa.Integer(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("committed_at", TIME, nullable=False),
        sa.Column("written_at", TIME),
        sa.PrimaryKeyConstraint("table_id", "version", name="pk_delta_versions"),
        sa.ForeignKeyConstraint(
            ["table_id", "snapshot_id"],
            ["snapshots.table_id", "snapshots.id"],
            name="fk_delta_versions_table_id_snapshot_id_snapshots",
        ),
    )
    op.create_index("ix_delta_versions_table_id_snapshot_id", "delta_versions", ["table_id", "snapshot_id"])
    op.create_index(
        "ix_delta_versions_unwritten",
        "delta_versions",
        ["table_id", "version"],
        postgresql_where=_UNWRITTEN,
        sqlite_where=_UNWRITTEN,
    )


def downgrade() -> None:
    """The logs stay where they are, and nothing keeps their files any more."""
    op.drop_table("delta_versions")
