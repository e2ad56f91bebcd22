"""Keys that are forgotten, and how often they were taken out of the files of a snapshot.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_PENDING = sa.text("forgotten_at IS NULL")
_UNENDED = sa.text("gone_at IS NULL")


def upgrade() -> None:
    """Nothing was forgotten so far."""
    op.add_column("snapshots", sa.Column("rewritten", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "forgettings",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("salt", sa.String(), nullable=False),
        sa.Column("prints", sa.Text(), nullable=False),
        sa.Column("keys", sa.Integer(), nullable=False),
        sa.Column("until_batch", sa.BigInteger(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False, server_default=""),
        sa.Column("reference", sa.Text()),
        sa.Column("forgotten_at", sa.DateTime(timezone=True)),
        sa.Column("gone_at", sa.DateTime(timezone=True)),
        sa.Column("snapshot_id", sa.Integer()),
        sa.Column("rows", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("records", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("remnants", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_forgettings"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_forgettings_table_id_tables", ondelete="CASCADE"),
    )
    op.create_index("ix_forgettings_table_id_requested_at", "forgettings", ["table_id", "requested_at"])
    op.create_index("ix_forgettings_table_id_snapshot_id", "forgettings", ["table_id", "snapshot_id"])
    op.create_index(
        "ix_forgettings_pending", "forgettings", ["table_id"], postgresql_where=_PENDING, sqlite_where=_PENDING
    )
    op.create_index(
        "ix_forgettings_unended", "forgettings", ["table_id"], postgresql_where=_UNENDED, sqlite_where=_UNENDED
    )


def downgrade() -> None:
    """Drop the record of forgettings. What was forgotten stays so."""
    op.drop_table("forgettings")
    op.drop_column("snapshots", "rewritten")
