"""The secrets of tokens that sign requests.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tokens before sign nothing."""
    op.add_column("tokens", sa.Column("secret", sa.String()))


def downgrade() -> None:
    """Delete the tokens that sign: without their secrets no signature can be checked."""
    op.execute(sa.text("DELETE FROM tokens WHERE secret IS NOT NULL"))
    op.drop_column("tokens", "secret")
