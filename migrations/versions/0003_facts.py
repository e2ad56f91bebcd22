"""That tokens are required is a fact of the catalog, which outlives the last token.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the facts; a catalog with tokens requires them."""
    op.create_table(
        "facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_facts"),
    )
    op.execute(
        "INSERT INTO facts (name, since) SELECT 'tokens_required', created_at FROM tokens ORDER BY created_at LIMIT 1"
    )


def downgrade() -> None:
    """Take it back: a catalog without tokens is open again."""
    op.drop_table("facts")
