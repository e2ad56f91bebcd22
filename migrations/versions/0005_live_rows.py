"""The live rows of a run, where they were counted when it was committed.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of the present runs the number is unknown."""
    op.add_column("runs", sa.Column("live_rows", sa.BigInteger()))


def downgrade() -> None:
    """Forget the counts."""
    op.drop_column("runs", "live_rows")
