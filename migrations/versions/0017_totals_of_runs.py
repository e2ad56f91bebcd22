"""The ranges of the totals of a run, as its tasks said them.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Those of older runs stay null; footers have them."""
    op.add_column("runs", sa.Column("totals", sa.Text()))


def downgrade() -> None:
    """Drop the column, and the checksums that it is part of: a row without one is not checked."""
    op.execute(sa.text("UPDATE runs SET checksum = NULL WHERE totals IS NOT NULL"))
    op.drop_column("runs", "totals")
