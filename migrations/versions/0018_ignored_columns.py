"""The columns of each batch that its table does not have and that were left out.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Batches before had none: such columns were refused."""
    op.add_column("batches", sa.Column("ignored_columns", sa.Text()))
    ignoring = sa.text("ignored_columns IS NOT NULL")
    op.create_index(
        "ix_batches_ignoring",
        "batches",
        ["table_id", "number"],
        postgresql_where=ignoring,
        sqlite_where=ignoring,
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_index("ix_batches_ignoring", "batches")
    op.drop_column("batches", "ignored_columns")
