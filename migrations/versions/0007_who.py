"""What a token may do, until when, and when it was last used; who created and last changed a database or table.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the columns; the tokens that are there go on opening everything."""
    op.add_column("tokens", sa.Column("role", sa.String(), nullable=False, server_default="admin"))
    op.add_column("tokens", sa.Column("scope", sa.Text(), nullable=False, server_default='["*"]'))
    op.add_column("tokens", sa.Column("expires_at", TIME))
    op.add_column("tokens", sa.Column("last_used_at", TIME))
    for table in ("databases", "tables"):  # unknown of the present ones
        for name in ("created_by", "updated_by"):
            op.add_column(table, sa.Column(name, sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    """Take them back. A token that may do less than everything is forgotten: without its role it would open all."""
    op.execute("""DELETE FROM tokens WHERE role <> 'admin' OR scope <> '["*"]' OR expires_at IS NOT NULL""")
    for name in ("last_used_at", "expires_at", "scope", "role"):
        op.drop_column("tokens", name)
    for table in ("databases", "tables"):
        for name in ("created_by", "updated_by"):
            op.drop_column(table, name)
