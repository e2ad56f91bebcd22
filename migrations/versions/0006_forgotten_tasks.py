"""How many merges and compactions of a table are not listed any more.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COUNTS = ("forgotten_merges", "forgotten_compactions")


def upgrade() -> None:
    """None is forgotten so far."""
    for name in COUNTS:
        op.add_column("tables", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Forget the counts."""
    for name in COUNTS:
        op.drop_column("tables", name)
