"""Compactions as jobs, runs of partitions, tags, changelogs, and what a table has written.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
COUNTERS = ("merged_bytes", "compacted_bytes", "changelog_bytes", "merges_since_full")
WAITING_STATES = ("pending", "running")


def upgrade() -> None:
    """Add what is new; what is there becomes merges, snapshots of merges and runs of tables without partitions."""
    for name in COUNTERS:
        op.add_column("tables", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("merges", sa.Column("job", sa.String(), nullable=False, server_default="merge"))
    op.add_column("merges", sa.Column("full", sa.Boolean(), nullable=False, server_default=sa.false()))
    _index_waiting(["table_id", "job"])
    op.add_column("runs", sa.Column("partition", sa.Text()))
    op.add_column("runs", sa.Column("full", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("runs", sa.Column("changed_at", TIME))
    op.add_column("snapshots", sa.Column("kind", sa.String(), nullable=False, server_default="merge"))
    op.add_column("snapshots", sa.Column("schema_id", sa.Integer(), nullable=False, server_default="0"))
    _fill_schemas()
    _create_tags()
    _create_changelog_files()


def downgrade() -> None:
    """Take it back; compactions are forgotten."""
    op.drop_table("changelog_files")
    op.drop_table("tags")
    op.execute("DELETE FROM merges WHERE job <> 'merge'")
    _index_waiting(["table_id"])
    for table, names in (
        ("snapshots", ("kind", "schema_id")),
        ("runs", ("partition", "full", "changed_at")),
        ("merges", ("job", "full")),
        ("tables", COUNTERS),
    ):
        for name in names:
            op.drop_column(table, name)  # not in batch mode: that would drop the table and what hangs on it


def _fill_schemas() -> None:
    """A snapshot's newest run was written under the schema of its commit, or the one before."""
    newest = (
        "SELECT max(runs.schema_id) FROM snapshot_runs JOIN runs ON runs.table_id = snapshot_runs.table_id"
        " AND runs.id = snapshot_runs.run_id WHERE snapshot_runs.table_id = snapshots.table_id"
        " AND snapshot_runs.snapshot_id = snapshots.id"
    )
    op.execute(f"UPDATE snapshots SET schema_id = coalesce(({newest}), 0)")  # noqa: S608  # constants only


def _index_waiting(columns: list[str]) -> None:
    for state in WAITING_STATES:
        where = sa.text(f"state = '{state}'")
        op.drop_index(f"uq_merges_{state}", table_name="merges")
        op.create_index(
            f"uq_merges_{state}", "merges", columns, unique=True, postgresql_where=where, sqlite_where=where
        )


def _create_tags() -> None:
    op.create_table(
        "tags",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.PrimaryKeyConstraint("table_id", "name", name="pk_tags"),
        sa.ForeignKeyConstraint(
            ["table_id", "snapshot_id"],
            ["snapshots.table_id", "snapshots.id"],
            name="fk_tags_table_id_snapshot_id_snapshots",
        ),
    )
    op.create_index("ix_tags_table_id_snapshot_id", "tags", ["table_id", "snapshot_id"])


def _create_changelog_files() -> None:
    op.create_table(
        "changelog_files",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "snapshot_id", "position", name="pk_changelog_files"),
        sa.ForeignKeyConstraint(
            ["table_id", "snapshot_id"],
            ["snapshots.table_id", "snapshots.id"],
            name="fk_changelog_files_table_id_snapshot_id_snapshots",
            ondelete="CASCADE",
        ),
    )
