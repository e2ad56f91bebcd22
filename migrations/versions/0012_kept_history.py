"""The records of merged batches are kept for a while, to explain rows.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_MERGED = sa.text("state = 'merged'")


def upgrade() -> None:
    """What was merged so far may have been swept: history begins after each table's current snapshot."""
    op.create_table(
        "histories",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("since", sa.Integer(), nullable=False),
        sa.Column("filed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", name="pk_histories"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name="fk_histories_table_id_tables", ondelete="CASCADE"),
    )
    op.create_table(
        "history_bases",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("snapshot_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("table_id", "snapshot_id", name="pk_history_bases"),
        sa.ForeignKeyConstraint(
            ["table_id", "snapshot_id"],
            ["snapshots.table_id", "snapshots.id"],
            name="fk_history_bases_table_id_snapshot_id_snapshots",
        ),
    )
    op.create_table(
        "history_files",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("first_snapshot", sa.Integer(), nullable=False),
        sa.Column("last_snapshot", sa.Integer(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String()),
        sa.Column("block_digests", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("table_id", "name", name="pk_history_files"),
        sa.ForeignKeyConstraint(
            ["table_id"], ["tables.id"], name="fk_history_files_table_id_tables", ondelete="CASCADE"
        ),
    )
    op.create_index(
        "ix_batches_merged",
        "batches",
        ["table_id", "snapshot_id"],
        postgresql_where=_MERGED,
        sqlite_where=_MERGED,
    )
    op.execute(
        "INSERT INTO histories (table_id, since, filed) "
        "SELECT id, snapshot_id, snapshot_id FROM tables WHERE snapshot_id IS NOT NULL"
    )


def downgrade() -> None:
    """What was kept is garbage, and swept."""
    op.drop_index("ix_batches_merged", "batches")
    op.drop_table("history_files")
    op.drop_table("history_bases")
    op.drop_table("histories")
