"""What the bytes of every file come to, and the files that were found damaged.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_IN_BLOCKS = ("data_files", "changelog_files")


def upgrade() -> None:
    """Add the columns. The present files have no digest: they are checked by their size and pages."""
    for table in ("batches", *_IN_BLOCKS):
        op.add_column(table, sa.Column("digest", sa.String()))
    for table in _IN_BLOCKS:
        op.add_column(table, sa.Column("block_digests", sa.LargeBinary()))
    op.create_table(
        "damages",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("path", sa.String().with_variant(sa.String(collation="C"), "postgresql"), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("expected", sa.Text(), nullable=False),
        sa.Column("found", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.String()),
        sa.Column("batch_number", sa.BigInteger()),
        sa.Column("run_id", sa.String()),
        sa.Column("snapshot_id", sa.Integer()),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "path", name="pk_damages"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_damages_table_id_tables", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """Forget all of it."""
    op.drop_table("damages")
    for table in _IN_BLOCKS:
        op.drop_column(table, "block_digests")
    for table in ("batches", *_IN_BLOCKS):
        op.drop_column(table, "digest")
