"""What merges need to know without trusting clocks: failures in a row, and when a lease was taken.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the columns; a table whose merges fail now begins to count again from 0."""
    op.add_column("tables", sa.Column("failed_merges", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("tables", sa.Column("merge_failed_at", TIME))
    op.add_column("merges", sa.Column("leased_at", TIME))


def downgrade() -> None:
    """Take them back."""
    op.drop_column("merges", "leased_at")
    op.drop_column("tables", "merge_failed_at")
    op.drop_column("tables", "failed_merges")
