"""Versions that other engines read are of a format: Delta's so far.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
_UNWRITTEN = sa.text("written_at IS NULL")
_KEPT = "table_id, version, snapshot_id, as_of, schema_id, committed_at, written_at"


def upgrade() -> None:
    """All that is published is Delta's."""
    _create("published_versions", sa.Column("format", sa.String(), nullable=False), "format")
    op.execute(f"INSERT INTO published_versions (format, {_KEPT}) SELECT 'delta', {_KEPT} FROM delta_versions")  # noqa: S608  # names of this file
    op.drop_table("delta_versions")


def downgrade() -> None:
    """What is published in other formats stays where it is, and nothing keeps its files any more."""
    _create("delta_versions")
    kept = f"SELECT {_KEPT} FROM published_versions WHERE format = 'delta'"  # noqa: S608  # the same
    op.execute(f"INSERT INTO delta_versions ({_KEPT}) {kept}")  # the same
    op.drop_table("published_versions")


def _create(name: str, column: sa.Column[str] | None = None, *key: str) -> None:
    op.create_table(
        name,
        sa.Column("table_id", sa.String(), nullable=False),
        *([] if column is None else [column]),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("as_of", sa.Integer(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("committed_at", TIME, nullable=False),
        sa.Column("written_at", TIME),
        sa.PrimaryKeyConstraint("table_id", *key, "version", name=f"pk_{name}"),
        sa.ForeignKeyConstraint(
            ["table_id", "snapshot_id"],
            ["snapshots.table_id", "snapshots.id"],
            name=f"fk_{name}_table_id_snapshot_id_snapshots",
        ),
    )
    op.create_index(f"ix_{name}_table_id_snapshot_id", name, ["table_id", "snapshot_id"])
    op.create_index(
        f"ix_{name}_unwritten",
        name,
        ["table_id", *key, "version"],
        postgresql_where=_UNWRITTEN,
        sqlite_where=_UNWRITTEN,
    )
