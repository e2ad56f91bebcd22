"""The sender of a batch, and what rewrote a table: parts of the explanation of a value.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Of earlier batches the sender is unknown; of earlier rollbacks, the snapshot that they restored."""
    op.add_column("batches", sa.Column("accepted_by", sa.String(), nullable=False, server_default=""))
    op.create_table(
        "rewrites",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("snapshot_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("restored_from", sa.Integer()),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("committed_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("table_id", "snapshot_id", name="pk_rewrites"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_rewrites_table_id_tables", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """What was known is forgotten."""
    op.drop_table("rewrites")
    op.drop_column("batches", "accepted_by")
