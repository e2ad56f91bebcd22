"""The catalog's tables. ``migrations/`` creates them; a test asserts that both agree.

Every row of a table refers to it with ON DELETE CASCADE, so that dropping a table cannot leave orphans.
"""

from __future__ import annotations

import sqlalchemy as sa

from app.catalog.shared.columns import EnumText, JsonText, UtcTime, checksum, digests, name_type, table_id
from app.core.access import EVERYTHING, Role
from app.core.table.history import SET_ASIDE, BatchState, SnapshotKind, TaskKind, TaskState, TaskTrigger
from app.core.table.upkeep.damage import DamageReason, FileKind

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

databases = sa.Table(
    "databases",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("name", name_type(), nullable=False),
    sa.Column("options", JsonText, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    # Names of tokens; empty if there was none.
    sa.Column("created_by", sa.String, nullable=False, server_default=""),
    sa.Column("updated_by", sa.String, nullable=False, server_default=""),
    sa.UniqueConstraint("name"),
)

# The row of a table is also its lock: taken first to number a batch, claim or commit (repository).
tables = sa.Table(
    "tables",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("database_id", sa.String, sa.ForeignKey("databases.id"), nullable=False),
    sa.Column("name", name_type(), nullable=False),
    sa.Column("schema_id", sa.Integer, nullable=False),
    sa.Column("snapshot_id", sa.Integer),  # the current snapshot's number, null before the first commit
    sa.Column("last_batch_number", sa.BigInteger, nullable=False),
    # Bytes that commits have written, of snapshots that are forgotten too.
    sa.Column("merged_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("compacted_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("changelog_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("merges_since_full", sa.BigInteger, nullable=False, server_default="0"),  # full compaction
    # The most batches of its next merge, while a faulty batch is searched for; null: all.
    sa.Column("merge_at_most", sa.Integer),
    # Successful tasks that are no longer listed: ``Tasks.forget``.
    sa.Column("forgotten_merges", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("forgotten_compactions", sa.BigInteger, nullable=False, server_default="0"),
    # Merges that failed since the last success: counted, since times do not show the order.
    sa.Column("failed_merges", sa.Integer, nullable=False, server_default="0"),
    sa.Column("merge_failed_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("created_by", sa.String, nullable=False, server_default=""),
    sa.Column("updated_by", sa.String, nullable=False, server_default=""),
    # Of the database's name and its own: finds a table whose name, or an index of it, was damaged.
    sa.Column("name_hash", sa.String, index=True),
    sa.Column("checksum", sa.String),  # ``app.catalog.shared.checksums.of_table``
    sa.UniqueConstraint("database_id", "name"),
)

table_schemas = sa.Table(
    "table_schemas",
    metadata,
    table_id(primary_key=True),
    sa.Column("schema_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),  # TableSchema.to_json as text
    checksum(),
)

# Tasks, including compactions: tables and columns keep their first names, for catalogs in use.
merges = sa.Table(
    "merges",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    table_id(),
    sa.Column("job", EnumText(TaskKind), key="kind", nullable=False, server_default=TaskKind.MERGE.value),
    sa.Column("full", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("state", EnumText(TaskState), nullable=False),
    sa.Column("trigger", EnumText(TaskTrigger), nullable=False),
    sa.Column("requested_at", UtcTime, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.Column("progress", sa.Float, nullable=False),
    sa.Column("progress_detail", JsonText, nullable=False),
    sa.Column("snapshot_id", sa.Integer),
    sa.Column("batches", sa.Integer, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("lease_owner", sa.String),
    sa.Column("leased_at", UtcTime),  # when the lease was last taken or renewed
    sa.Column("lease_expires_at", UtcTime),
    sa.Index("ix_merges_table_id_requested_at", "table_id", "requested_at"),
    sa.Index("ix_merges_table_id_state_finished_at", "table_id", "state", "finished_at"),
)
# At most one merge (and one compaction) of a table waits, at most one runs: the database itself refuses a second one.
for _state in (TaskState.PENDING, TaskState.RUNNING):
    _where = sa.text(f"state = '{_state.value}'")
    _columns = (merges.c.table_id, merges.c.kind)
    sa.Index(f"uq_merges_{_state.value}", *_columns, unique=True, postgresql_where=_where, sqlite_where=_where)

# The counts of late records of a merge (``app.services.explaining.lateness``), if they were counted.
late_merges = sa.Table(
    "late_merges",
    metadata,
    sa.Column("merge_id", sa.String, sa.ForeignKey("merges.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("counted", JsonText, nullable=False),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    table_id(),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("state", EnumText(BatchState), nullable=False),
    sa.Column("schema_id", sa.Integer, nullable=False),
    sa.Column("file", sa.String, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("ignored", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("fingerprint", sa.String, nullable=False),
    sa.Column("idempotency_key", sa.String),
    sa.Column("accepted_at", UtcTime, nullable=False),
    # The merge that claimed it, or null; null again when that merge failed.
    sa.Column("merge_id", sa.String, sa.ForeignKey("merges.id"), index=True),
    sa.Column("snapshot_id", sa.Integer),
    sa.Column("digest", sa.String),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("fault", sa.Text),
    sa.Column("accepted_by", sa.String, nullable=False, server_default=""),
    sa.Column("ignored_columns", JsonText),
    checksum(),
    sa.UniqueConstraint("table_id", "number"),
    sa.UniqueConstraint("table_id", "idempotency_key"),
)
# Merged batches accumulate; staged ones are looked up every second and must not scan them.
_aside = sa.text(f"state IN ({', '.join(repr(state.value) for state in SET_ASIDE)})")
sa.Index("ix_batches_set_aside", batches.c.table_id, postgresql_where=_aside, sqlite_where=_aside)
_ignoring = sa.text("ignored_columns IS NOT NULL")
sa.Index(
    "ix_batches_ignoring", batches.c.table_id, batches.c.number, postgresql_where=_ignoring, sqlite_where=_ignoring
)
_staged = sa.text(f"state = '{BatchState.STAGED.value}'")
sa.Index("ix_batches_staged", batches.c.table_id, batches.c.number, postgresql_where=_staged, sqlite_where=_staged)
_merged = sa.text(f"state = '{BatchState.MERGED.value}'")
sa.Index("ix_batches_merged", batches.c.table_id, batches.c.snapshot_id, postgresql_where=_merged, sqlite_where=_merged)

runs = sa.Table(
    "runs",
    metadata,
    table_id(primary_key=True),
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("schema_id", sa.Integer, nullable=False),
    sa.Column("partition", sa.Text),
    sa.Column("full", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("changed_at", UtcTime),
    sa.Column("live_rows", sa.BigInteger),  # null if it was not counted
    sa.Column("totals", JsonText),  # ``app.core.table.total_ranges``; null in rows of before migration 0017
    checksum(),
)

data_files = sa.Table(
    "data_files",
    metadata,
    sa.Column("table_id", sa.String, primary_key=True),
    sa.Column("run_id", sa.String, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("min_token", sa.BigInteger, nullable=False),
    sa.Column("max_token", sa.BigInteger, nullable=False),
    *digests(),
    sa.ForeignKeyConstraint(["table_id", "run_id"], ["runs.table_id", "runs.id"], ondelete="CASCADE"),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    table_id(primary_key=True),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),  # its number, from 1
    sa.Column("merge_id", sa.String),
    sa.Column("committed_at", UtcTime, nullable=False),
    sa.Column("kind", EnumText(SnapshotKind), nullable=False, server_default=SnapshotKind.MERGE.value),
    sa.Column("schema_id", sa.Integer, nullable=False, server_default="0"),
    # How often keys were removed from its files; always 0 for a current one (docs/decisions/0036).
    sa.Column("rewritten", sa.Integer, nullable=False, server_default="0"),
    checksum(),
)

snapshot_runs = sa.Table(
    "snapshot_runs",
    metadata,
    sa.Column("table_id", sa.String, primary_key=True),
    sa.Column("snapshot_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),  # 0 is the oldest run
    sa.Column("run_id", sa.String, nullable=False),
    sa.ForeignKeyConstraint(["table_id", "snapshot_id"], ["snapshots.table_id", "snapshots.id"], ondelete="CASCADE"),
    # A run may only be deleted after the last snapshot that names it.
    sa.ForeignKeyConstraint(["table_id", "run_id"], ["runs.table_id", "runs.id"]),
    sa.Index("ix_snapshot_runs_table_id_run_id", "table_id", "run_id"),
)

# Snapshots that are not just the previous one plus some batches; kept longer than the snapshots.
rewrites = sa.Table(
    "rewrites",
    metadata,
    table_id(primary_key=True),
    sa.Column("snapshot_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", EnumText(SnapshotKind), nullable=False),
    sa.Column("restored_from", sa.Integer),
    sa.Column("partitions", JsonText, nullable=False),  # those that were dropped
    sa.Column("committed_at", UtcTime, nullable=False),
)

tags = sa.Table(
    "tags",
    metadata,
    sa.Column("table_id", sa.String, primary_key=True),
    sa.Column("name", name_type(), primary_key=True),
    sa.Column("snapshot_id", sa.Integer, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    # A snapshot may only be deleted after its last tag.
    sa.ForeignKeyConstraint(["table_id", "snapshot_id"], ["snapshots.table_id", "snapshots.id"]),
    sa.Index("ix_tags_table_id_snapshot_id", "table_id", "snapshot_id"),
)

# Versions that other engines read: their files are written after them, from what they name (docs/decisions/0031).
published_versions = sa.Table(
    "published_versions",
    metadata,
    sa.Column("table_id", sa.String, primary_key=True),
    sa.Column("format", sa.String, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),  # of each format from 0, without a gap
    sa.Column("snapshot_id", sa.Integer, nullable=False),  # keeps the runs
    sa.Column("base_id", sa.Integer),  # the snapshot whose rows the runs hold; it may have expired
    sa.Column("as_of", sa.Integer, nullable=False),  # the snapshot that is shown, by the changelogs of merges after it
    sa.Column("schema_id", sa.Integer, nullable=False),
    sa.Column("committed_at", UtcTime, nullable=False),
    sa.Column("written_at", UtcTime),  # null while its files are not there
    sa.Column("counts", JsonText),  # the totals of its files; null while unknown
    # A snapshot may only be deleted after the last version that names its files.
    sa.ForeignKeyConstraint(["table_id", "snapshot_id"], ["snapshots.table_id", "snapshots.id"]),
    sa.Index("ix_published_versions_table_id_snapshot_id", "table_id", "snapshot_id"),
)
_unwritten = sa.text("written_at IS NULL")
sa.Index(
    "ix_published_versions_unwritten",
    published_versions.c.table_id,
    published_versions.c.format,
    published_versions.c.version,
    postgresql_where=_unwritten,
    sqlite_where=_unwritten,
)

changelog_files = sa.Table(
    "changelog_files",
    metadata,
    sa.Column("table_id", sa.String, primary_key=True),
    sa.Column("snapshot_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    *digests(),
    sa.ForeignKeyConstraint(["table_id", "snapshot_id"], ["snapshots.table_id", "snapshots.id"], ondelete="CASCADE"),
)

# The kept history of merged batches (docs/decisions/0034); without a row everything from the first batch on is kept.
histories = sa.Table(
    "histories",
    metadata,
    table_id(primary_key=True),
    sa.Column("since", sa.Integer, nullable=False),
    sa.Column("filed", sa.Integer, nullable=False),
)

history_bases = sa.Table(
    "history_bases",
    metadata,
    sa.Column("table_id", sa.String, primary_key=True),
    sa.Column("snapshot_id", sa.Integer, primary_key=True, autoincrement=False),
    # A snapshot may only be deleted when no explanation begins with it.
    sa.ForeignKeyConstraint(["table_id", "snapshot_id"], ["snapshots.table_id", "snapshots.id"]),
)

history_files = sa.Table(
    "history_files",
    metadata,
    table_id(primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("schema_id", sa.Integer, nullable=False),
    sa.Column("first_snapshot", sa.Integer, nullable=False),
    sa.Column("last_snapshot", sa.Integer, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    *digests(),
)

# Keys that are removed from all files of a table (docs/decisions/0036), by fingerprint, never by value.
forgettings = sa.Table(
    "forgettings",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    table_id(),
    sa.Column("salt", sa.String, nullable=False),
    sa.Column("prints", JsonText, nullable=False),  # blanked when the forgetting is complete
    sa.Column("keys", sa.Integer, nullable=False),
    sa.Column("until_batch", sa.BigInteger, nullable=False),
    sa.Column("requested_at", UtcTime, nullable=False),
    sa.Column("requested_by", sa.String, nullable=False, server_default=""),
    sa.Column("reference", sa.Text),
    sa.Column("forgotten_at", UtcTime),
    sa.Column("gone_at", UtcTime),
    sa.Column("snapshot_id", sa.Integer),  # the first without them; it may have expired
    sa.Column("rows", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("records", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("held", JsonText, nullable=False),  # numbers of older snapshots that still have them
    sa.Column("remnants", JsonText, nullable=False),
    sa.Index("ix_forgettings_table_id_requested_at", "table_id", "requested_at"),
    sa.Index("ix_forgettings_table_id_snapshot_id", "table_id", "snapshot_id"),
)
_begun = sa.text("forgotten_at IS NULL")
sa.Index("ix_forgettings_pending", forgettings.c.table_id, postgresql_where=_begun, sqlite_where=_begun)
_unended = sa.text("gone_at IS NULL")
sa.Index("ix_forgettings_unended", forgettings.c.table_id, postgresql_where=_unended, sqlite_where=_unended)

set_aside_events = sa.Table(
    "set_aside_events",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    table_id(),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String, nullable=False),
    sa.Column("format", sa.String, nullable=False),
    sa.Column("unavailable", sa.String, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("faults", JsonText, nullable=False),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("batch_id", sa.String, nullable=False),  # the batch may have been deleted from the list
    sa.Column("set_aside_at", UtcTime, nullable=False),
    sa.Column("set_aside_by", sa.String, nullable=False),
    sa.UniqueConstraint("table_id", "number"),
    sa.UniqueConstraint("table_id", "digest"),
)

# Damaged or missing files; a file is here until it is found intact, or nothing names it any more.
damages = sa.Table(
    "damages",
    metadata,
    table_id(primary_key=True),
    sa.Column("path", name_type(), primary_key=True),
    sa.Column("kind", EnumText(FileKind), nullable=False),
    sa.Column("reason", EnumText(DamageReason), nullable=False),
    sa.Column("expected", sa.Text, nullable=False),
    sa.Column("found", sa.Text, nullable=False),
    # The owner of the file, which may have been deleted.
    sa.Column("batch_id", sa.String),
    sa.Column("batch_number", sa.BigInteger),
    sa.Column("run_id", sa.String),
    sa.Column("snapshot_id", sa.Integer),
    sa.Column("found_at", UtcTime, nullable=False),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("name", name_type(), primary_key=True),
    sa.Column("digest", sa.String, nullable=False),
    # The defaults are for tokens from before there were roles: they permit everything.
    sa.Column("role", EnumText(Role), nullable=False, server_default=Role.ADMIN.value),
    sa.Column("scope", JsonText, nullable=False, server_default=f'["{EVERYTHING}"]'),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("last_used_at", UtcTime),
    sa.Column("secret", sa.String),
    sa.UniqueConstraint("digest"),
)

# Facts about the whole catalog: ``app.catalog.tokens.Fact``.
facts = sa.Table(
    "facts",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
)
