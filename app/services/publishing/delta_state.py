"""What of a table is published as Delta, how far behind it is, and how other engines read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.catalog.repository import Repository
from app.catalog.snapshots.delta_versions import Behind
from app.core.table.delta import DeltaVersion
from app.core.table.history import Table
from app.files.layout import Warehouse, table_folder
from app.services.publishing.delta import lags


@dataclass(frozen=True)
class DeltaState:
    """The newest version that readers see, None before the first; ``earliest`` is the first that they can go back to.

    ``behind`` are the batches that are not in it, at ``now``. ``waiting`` says why, and what to do; None where nothing
    is missing. ``path`` is the table's folder; ``read_by`` the line to paste, by engine, None before the first version.
    """

    publishes: bool
    newest: DeltaVersion | None
    earliest: DeltaVersion | None
    behind: Behind
    now: datetime
    waiting: str | None
    path: str
    read_by: Mapping[str, str] | None

    @property
    def behind_millis(self) -> int:
        """For how long the oldest batch that is not in it has been waiting."""
        oldest = self.behind.oldest_accepted_at
        return 0 if oldest is None else max(0, int((self.now - oldest).total_seconds() * 1000))


def delta_state(repository: Repository, warehouse: Warehouse, table: Table) -> DeltaState:
    """Return what is published of the table, which was read in the same transaction."""
    kept = repository.delta.page(table.id)
    written = [version for version in kept if version.written_at is not None]
    newest = written[-1] if written else None
    return DeltaState(
        table.schema.parsed["delta.publish"],
        newest,
        written[0] if written else None,
        repository.delta.behind_of(table.id, newest.as_of if newest else 0),
        repository.now(),
        _waiting(repository, table, kept),
        warehouse.uri(*table_folder(table.id)),
        read_by(warehouse, table) if newest else None,
    )


def _waiting(repository: Repository, table: Table, kept: list[DeltaVersion]) -> str | None:
    if not table.schema.parsed["delta.publish"]:
        return "nothing is published: set delta.publish = true" + (", to go on from the version below" if kept else "")
    if table.snapshot_id is None:
        return "nothing was merged yet"
    pending = [version.version for version in kept if version.written_at is None]
    if pending:
        return f"a worker is about to write version {pending[0]}; if it stays so, its log says why"
    if lags(repository, table):
        return "the next full compaction publishes what was merged: POST …/compact, or set delta.publish.interval"
    if repository.stats.staged(table.id).batches:
        return "batches are staged: once they are merged, the next full compaction publishes them"
    return None


def read_by(warehouse: Warehouse, table: Table) -> dict[str, str]:
    """Return how each engine reads the table, to be pasted: Delta's readers are told the folder, whatever the table's
    name.
    """
    folder = table_folder(table.id)
    place = warehouse.path(*folder) if warehouse.local else warehouse.uri(*folder)
    schema, name = _sql(table.database), _sql(table.name)
    location = _sql(warehouse.uri(*folder))
    return {
        "duckdb": f"INSTALL delta; LOAD delta; SELECT * FROM delta_scan({_sql(place)});",  # noqa: S608  # to be pasted, and quoted
        "polars": f"polars.scan_delta({json.dumps(place)}).collect()",
        "spark": f'spark.read.format("delta").load({json.dumps(warehouse.spark_uri(*folder))})',
        "trino": f"CALL delta.system.register_table(schema_name => {schema}, table_name => {name},"
        f" table_location => {location})",
    }


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
