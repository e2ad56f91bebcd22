"""Batches that are set aside because no merge can fold them.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_SET_ASIDE = sa.text("state IN ('damaged', 'poisoned')")


def upgrade() -> None:
    """None is set aside so far."""
    op.add_column("tables", sa.Column("merge_at_most", sa.Integer()))
    op.add_column("batches", sa.Column("tries", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("batches", sa.Column("fault", sa.Text()))
    op.create_index(
        "ix_batches_set_aside", "batches", ["table_id"], postgresql_where=_SET_ASIDE, sqlite_where=_SET_ASIDE
    )


def downgrade() -> None:
    """What is set aside would be taken for merged: it is staged again."""
    op.execute("UPDATE batches SET state = 'staged', merge_id = NULL WHERE state IN ('damaged', 'poisoned')")
    op.drop_index("ix_batches_set_aside", "batches")
    op.drop_column("batches", "fault")
    op.drop_column("batches", "tries")
    op.drop_column("tables", "merge_at_most")
