"""What the files of a published version come to. Versions written so far do not say it.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Counts are known from the next version on."""
    op.add_column("published_versions", sa.Column("counts", sa.Text()))


def downgrade() -> None:
    """Nothing else depends on them."""
    op.drop_column("published_versions", "counts")
