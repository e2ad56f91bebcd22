"""Where the benchmarks merge: a real catalog, warehouse and Spark in an empty folder, driven as the worker drives
them.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql.connect.session import SparkSession

from app.catalog.database import CatalogDatabase
from app.core.plan.merging.merge_plan import MergePlan, compile_plan
from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.history import Batch, CatalogTask, NewBatch, Snapshot, Table, TaskState
from app.core.table.records import RowKind
from app.core.table.schema import TableSchema
from app.files.layout import Warehouse
from app.services.merging.compactions import ask_for_compaction
from app.services.merging.merges import request_merge
from app.services.shared.executor import MergeSite
from app.settings import Settings
from app.spark import SparkExecutor
from app.storage.ingest.named import words_of_members
from app.storage.staging.staging import write_pieces
from bench.wide_table import base_records, schema_json
from tests.catalog.builders import add_batch
from tests.services.builders import run_next_compaction, run_next_merge

LEASE_SECONDS = 600
DATABASE = "bench"
NO_COMPACTION = {"num-sorted-run.compaction-trigger": "1000000"}


class BenchSite:
    """A merge site in ``folder`` with an embedded Spark server; tables are made, filled and merged without HTTP."""

    def __init__(self, folder: Path) -> None:
        settings = Settings(KEYFOLD_DATA=folder)
        self.folder = folder
        self.executor = SparkExecutor(settings)
        database, warehouse = CatalogDatabase(settings.catalog_url), Warehouse(settings.warehouse_root)
        self.merges = MergeSite(database, warehouse, self.executor, LEASE_SECONDS)
        self.merges.database.migrate()
        with self.merges.database.transaction() as repository:
            repository.databases.create(DATABASE, {})

    def create_table(self, name: str, options: Mapping[str, str] = NO_COMPACTION) -> Table:
        """Create an empty wide table."""
        return self.create(name, TableSchema.from_json(schema_json(options)))

    def create(self, name: str, schema: TableSchema) -> Table:
        """Create an empty table."""
        with self.merges.database.transaction() as repository:
            return repository.tables.create(DATABASE, name, schema)

    def load(self, table: Table, rows: int) -> None:
        """Fill a table with its first rows: a merge for each million, then one full compaction where there were
        several.
        """
        chunks = 0
        for chunk in base_records(rows):
            self.stage(table, chunk)
            self.merge(table)
            chunks += 1
        if chunks > 1:
            self.compact(table)

    def stage(
        self,
        table: Table,
        records: pa.Table,
        named: Sequence[Collection[str]] = (),
        kinds: Sequence[RowKind] | None = None,
    ) -> Batch:
        """Do what accepting a POST does after decoding: the staging file, then the batch in the catalog.

        ``named`` is what each record names, where the table's records say that; ``kinds`` are inserts where nothing is
        said.
        """
        count = len(records)
        columns = {name: records[name] for name in records.column_names}
        positions = list(range(count))
        words = words_of_members(table.schema.columns, named) if table.schema.absent_unchanged else {}
        # Arrow columns serve as well as lists.
        decoded = DecodedRecords(columns, [*map(int, kinds or [RowKind.INSERT] * count)], positions, words=words)
        batch_id = uuid.uuid4().hex
        staged = write_pieces(self.merges.warehouse, table.id, batch_id, table.schema, [decoded])
        fingerprint = hashlib.sha256(batch_id.encode()).hexdigest()
        new = NewBatch(batch_id, table.schema_id, staged.file, count, 0, staged.size, fingerprint, digest=staged.digest)
        with self.merges.database.transaction() as repository:
            return add_batch(repository, table.id, new)

    def merge(self, table: Table) -> CatalogTask:
        """Merge everything staged as the worker does it."""
        wanted = request_merge(self.merges.database, table.id)
        assert run_next_merge(self.merges, "bench")
        with self.merges.database.reading() as repository:
            done = repository.tasks.get(table.id, wanted.id)
        assert done.state is TaskState.SUCCEEDED, done.error
        return done

    def compact_if_due(self) -> bool:
        """Run the compaction that a merge has requested, as the worker does; return whether there was one."""
        return run_next_compaction(self.merges, "bench")

    def compact(self, table: Table) -> None:
        """Compact all runs."""
        with self.merges.database.transaction() as repository:
            ask_for_compaction(repository, table.id)
        assert run_next_compaction(self.merges, "bench")

    def snapshot(self, table: Table) -> Snapshot:
        """Return what readers of the table see now."""
        with self.merges.database.reading() as repository:
            current = repository.snapshots.current(table.id)
        assert current is not None, "the table was never merged"
        return current

    def plan(self, table: Table) -> MergePlan:
        """Return the table's merge plan."""
        return compile_plan(table.schema)

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Open the session that merges run on."""
        with self.executor.open().connection.job(f"bench-{uuid.uuid4().hex}") as spark:
            yield spark

    def close(self) -> None:
        """End Spark and the catalog's connections."""
        self.executor.close()
        self.merges.database.close()


@contextmanager
def bench_site() -> Iterator[BenchSite]:
    """Open a site in a new folder, warmed up; the folder is deleted afterwards."""
    with TemporaryDirectory(prefix="keyfold-bench-") as folder, bench_site_in(Path(folder)) as site:
        yield site


@contextmanager
def bench_site_in(folder: Path) -> Iterator[BenchSite]:
    """Open a site in ``folder``, warmed up; what it made stays."""
    site = BenchSite(folder)
    try:
        site.executor.warm_up()
        yield site
    finally:
        site.close()
