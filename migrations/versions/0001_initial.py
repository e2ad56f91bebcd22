"""The catalog's first tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create every table."""
    _create_tables()
    _create_merges()
    _create_batches()
    _create_snapshots()
    op.create_table(
        "tokens",
        sa.Column("name", NAME, nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )


def downgrade() -> None:
    """Drop every table, those that others refer to last."""
    for table in (
        "tokens",
        "snapshot_runs",
        "snapshots",
        "data_files",
        "runs",
        "batches",
        "merges",
        "table_schemas",
        "tables",
        "databases",
    ):
        op.drop_table(table)


def _of_table(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=f"fk_{table}_table_id_tables", ondelete="CASCADE")


def _create_tables() -> None:
    op.create_table(
        "databases",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_databases"),
        sa.UniqueConstraint("name", name="uq_databases_name"),
    )
    op.create_table(
        "tables",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("database_id", sa.String(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("snapshot_id", sa.Integer()),
        sa.Column("last_batch_number", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tables"),
        sa.ForeignKeyConstraint(["database_id"], ["databases.id"], name="fk_tables_database_id_databases"),
        sa.UniqueConstraint("database_id", "name", name="uq_tables_database_id_name"),
    )
    op.create_table(
        "table_schemas",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "schema_id", name="pk_table_schemas"),
        _of_table("table_schemas"),
    )


def _create_merges() -> None:
    op.create_table(
        "merges",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("progress_detail", sa.Text(), nullable=False),
        sa.Column("snapshot_id", sa.Integer()),
        sa.Column("batches", sa.Integer(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("lease_owner", sa.String()),
        sa.Column("lease_expires_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_merges"),
        _of_table("merges"),
    )
    op.create_index("ix_merges_table_id_requested_at", "merges", ["table_id", "requested_at"])
    op.create_index("ix_merges_table_id_state_finished_at", "merges", ["table_id", "state", "finished_at"])
    for state in ("pending", "running"):
        only = sa.text(f"state = '{state}'")
        op.create_index(
            f"uq_merges_{state}", "merges", ["table_id"], unique=True, postgresql_where=only, sqlite_where=only
        )


def _create_batches() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("ignored", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String()),
        sa.Column("accepted_at", TIME, nullable=False),
        sa.Column("merge_id", sa.String()),
        sa.Column("snapshot_id", sa.Integer()),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        _of_table("batches"),
        sa.ForeignKeyConstraint(["merge_id"], ["merges.id"], name="fk_batches_merge_id_merges"),
        sa.UniqueConstraint("table_id", "number", name="uq_batches_table_id_number"),
        sa.UniqueConstraint("table_id", "idempotency_key", name="uq_batches_table_id_idempotency_key"),
    )
    op.create_index("ix_batches_merge_id", "batches", ["merge_id"])
    only = sa.text("state = 'staged'")
    op.create_index("ix_batches_staged", "batches", ["table_id", "number"], postgresql_where=only, sqlite_where=only)


def _create_snapshots() -> None:
    op.create_table(
        "runs",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("schema_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "id", name="pk_runs"),
        _of_table("runs"),
    )
    op.create_table(
        "data_files",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("min_token", sa.BigInteger(), nullable=False),
        sa.Column("max_token", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "run_id", "position", name="pk_data_files"),
        sa.ForeignKeyConstraint(
            ["table_id", "run_id"],
            ["runs.table_id", "runs.id"],
            name="fk_data_files_table_id_run_id_runs",
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "snapshots",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("merge_id", sa.String()),
        sa.Column("committed_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("table_id", "id", name="pk_snapshots"),
        _of_table("snapshots"),
    )
    op.create_table(
        "snapshot_runs",
        sa.Column("table_id", sa.String(), nullable=False),
        sa.Column("snapshot_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "snapshot_id", "position", name="pk_snapshot_runs"),
        sa.ForeignKeyConstraint(
            ["table_id", "snapshot_id"],
            ["snapshots.table_id", "snapshots.id"],
            name="fk_snapshot_runs_table_id_snapshot_id_snapshots",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["table_id", "run_id"], ["runs.table_id", "runs.id"], name="fk_snapshot_runs_table_id_run_id_runs"
        ),
    )
    op.create_index("ix_snapshot_runs_table_id_run_id", "snapshot_runs", ["table_id", "run_id"])
