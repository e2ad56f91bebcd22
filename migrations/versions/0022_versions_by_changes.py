"""The snapshot whose rows the runs of a published version hold; merges after it are read from their changelogs.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The runs of the versions so far hold all that they show."""
    op.add_column("published_versions", sa.Column("base_id", sa.Integer()))
    op.execute("UPDATE published_versions SET base_id = as_of")


def downgrade() -> None:
    """Versions that need changelogs cannot be said; readers find them until newer ones come."""
    op.execute("DELETE FROM published_versions WHERE base_id <> as_of")
    op.drop_column("published_versions", "base_id")
