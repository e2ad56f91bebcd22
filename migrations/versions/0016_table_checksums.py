"""Checksums of the rows of tables, and of their names, by which a table is found whose name was damaged.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from xxhash import xxh3_64_hexdigest

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def _checksum(*values: object) -> str:
    return xxh3_64_hexdigest(repr(values).encode("utf-8", "surrogatepass"))


def upgrade() -> None:
    """What is there is vouched for: tables are few, and their rows are written again with each commit."""
    for name in ("name_hash", "checksum"):
        op.add_column("tables", sa.Column(name, sa.String()))
    connection = op.get_bind()
    found = connection.execute(
        sa.text(
            "SELECT tables.id, databases.name, tables.database_id, tables.name, schema_id, snapshot_id"
            " FROM tables JOIN databases ON databases.id = tables.database_id"
        )
    )
    change = sa.text("UPDATE tables SET name_hash = :name_hash, checksum = :checksum WHERE id = :id")
    for table_id, database, database_id, name, schema_id, snapshot_id in found.all():
        name_hash = _checksum(database, name)
        checksum = _checksum(table_id, database_id, name, name_hash, schema_id, snapshot_id)
        connection.execute(change, {"id": table_id, "name_hash": name_hash, "checksum": checksum})
    op.create_index("ix_tables_name_hash", "tables", ["name_hash"])


def downgrade() -> None:
    """Nothing is checked any more."""
    op.drop_index("ix_tables_name_hash", "tables")
    for name in ("name_hash", "checksum"):
        op.drop_column("tables", name)
