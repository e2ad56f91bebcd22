"""What of a merge's records came late.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; of earlier merges nothing was counted."""
    op.create_table(
        "late_merges",
        sa.Column("merge_id", sa.String(), nullable=False),
        sa.Column("counted", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("merge_id", name="pk_late_merges"),
        sa.ForeignKeyConstraint(["merge_id"], ["merges.id"], name="fk_late_merges_merge_id_merges", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """What was counted is forgotten."""
    op.drop_table("late_merges")
