"""Change events with faults that a table keeps until they are retried or withdrawn.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tables have none: such events were refused with their request."""
    op.create_table(
        "set_aside_events",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("unavailable", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("faults", sa.Text(), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("set_aside_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_aside_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_set_aside_events"),
        sa.ForeignKeyConstraint(
            ["table_id"], ["tables.id"], name="fk_set_aside_events_table_id_tables", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("table_id", "number", name="uq_set_aside_events_table_id_number"),
        sa.UniqueConstraint("table_id", "digest", name="uq_set_aside_events_table_id_digest"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("set_aside_events")
