"""One table's files, merged and compacted on Spark."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from app.core.plan.evolution import combined_row
from app.core.plan.fold import finish, shown_row
from app.core.plan.jobs import ChangesJob, CompactionJob, FileSizes, MergeJob, OverflowJob, StoredRun
from app.core.plan.merge_plan import MergePlan
from app.core.plan.record_decoder import DecodedRecords
from app.core.table.history import Batch, BatchState, Run
from app.core.table.named_columns import named_words, words_naming
from app.core.table.records import KIND_COLUMN, KINDS_BY_TEXT, TOKEN_COLUMN, RowKind
from app.storage.changelogs import read_changelog
from app.storage.combined_columns import ColumnSteps
from app.storage.combined_runs import write_combined_run
from app.storage.folded_runs import write_folded_runs
from app.storage.layout import Warehouse, changelog_file, changelog_folder, data_file, run_folder, staging_file
from app.storage.lifted_runs import write_lifted_runs
from app.storage.runs import read_run, stored_files
from app.storage.staging import write_batch
from spark_jobs.changes import write_changes
from spark_jobs.compact import run_compaction
from spark_jobs.merge import run_merge
from spark_jobs.overflow import find_overflow
from spark_jobs.session import SparkConnection
from tests import oracle

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row | None]
Change = tuple[RowKind, Row]


class Site:
    """One table's files, with merges and compactions run on Spark."""

    def __init__(self, spark: SparkConnection, folder: Path, plan: MergePlan) -> None:
        self.spark = spark
        self.plan = plan
        self.warehouse = Warehouse(str(folder))
        self.table_id = uuid.uuid4().hex
        self.batches = 0
        self.now = 1_000
        self.runs: list[Run] = []
        self.plans: dict[str, MergePlan] = {}
        self.target_file_bytes = 1024**2  # at one byte a row, as ``sizes`` has it

    def stage(self, changes: Sequence[oracle.Change]) -> tuple[str, int, int]:
        kept = [(i, c) for i, c in enumerate(changes) if KINDS_BY_TEXT[c.kind] not in self.plan.dropped]
        decoded = DecodedRecords(
            {column.name: [c.values[column.name] for _, c in kept] for column in self.plan.schema.columns},
            [int(KINDS_BY_TEXT[c.kind]) for _, c in kept],
            [i for i, _ in kept],
            words=self._words([c for _, c in kept]),
        )
        self.batches += 1
        name, _ = write_batch(self.warehouse, self.table_id, uuid.uuid4().hex, self.plan.schema, decoded)
        return self.warehouse.uri(*staging_file(self.table_id, name)), self.batches, len(kept)

    def _words(self, changes: Sequence[oracle.Change]) -> dict[str, list[int]]:
        schema = self.plan.schema
        told = [words_naming(schema.columns, change.named) for change in changes]
        return {word: [words[word] for words in told] for word in named_words(schema)}

    def merge(self, batches: Sequence[Sequence[oracle.Change]], *, keeps_input: bool = False) -> str:
        return self.merge_staged([self.stage(changes) for changes in batches], keeps_input=keeps_input)

    def merge_staged(
        self, staged: Sequence[tuple[str, int, int]], *, keeps_input: bool = False, distinct_keys: bool = False
    ) -> str:
        """A merge of what ``stage`` wrote, under whatever plan, with the present one; the new run's id, which is also
        the folder of its records where they are kept. ``distinct_keys`` as in ``MergeJob``.
        """
        run_id = uuid.uuid4().hex
        job = MergeJob(
            self.plan,
            {uri: number for uri, number, _ in staged},
            self.sizes(sum(size for _, _, size in staged)),
            self.warehouse.uri(*run_folder(self.table_id, run_id)),
            self.now,
            self.warehouse.uri(*changelog_folder(self.table_id, run_id)) if keeps_input else None,
            distinct_keys,
        )
        with self.spark.job(run_id) as session:
            run_merge(session, job)
        self.runs.append(read_run(self.warehouse, self.table_id, run_id, 0))
        self.plans[run_id] = self.plan
        return run_id

    def merge_here(self, batches: Sequence[Sequence[oracle.Change]]) -> str:
        """A merge as a worker folds it by itself."""
        return self.merge_staged_here([self.stage(changes) for changes in batches])

    def merge_staged_here(self, staged: Sequence[tuple[str, int, int]]) -> str:
        """As ``merge_staged``, without Spark."""
        run_id = uuid.uuid4().hex
        batches = [self.batch(uri, number, size) for uri, number, size in staged]
        write_folded_runs(self.warehouse, self.table_id, run_id, self.plan, batches, self.now)
        self.runs.append(read_run(self.warehouse, self.table_id, run_id, 0))
        self.plans[run_id] = self.plan
        return run_id

    def merge_lifted_here(self, staged: Sequence[tuple[str, int, int]], most_bytes: int = 2**20) -> str:
        """As ``merge_staged``, without Spark, by whole columns. Raises ``LeftToSpark``."""
        run_id = uuid.uuid4().hex
        batches = [self.batch(uri, number, size) for uri, number, size in staged]
        self.write_lifted(run_id, batches, most_bytes)
        self.runs.append(read_run(self.warehouse, self.table_id, run_id, 0))
        self.plans[run_id] = self.plan
        return run_id

    def write_lifted(self, run_id: str, batches: Sequence[Batch], most_bytes: int = 2**20) -> tuple[Run, ...]:
        """The runs of a merge by whole columns. Raises ``LeftToSpark``."""
        told = (self.now, most_bytes, lambda: None)
        return write_lifted_runs(self.warehouse, self.table_id, run_id, self.plan, batches, *told)

    def batch(self, uri: str, number: int, records: int) -> Batch:
        """A staged batch as the catalog has it."""
        path = Path(uri.removeprefix("file://"))
        size, posted = path.stat().st_size, datetime(2024, 1, 1, tzinfo=UTC)
        return Batch(
            path.stem,
            self.table_id,
            number,
            BatchState.STAGED,
            0,
            path.name,
            records,
            0,
            size,
            fingerprint="",
            idempotency_key=None,
            accepted_at=posted,
            merge_id=None,
            snapshot_id=None,
        )

    def changes(
        self, older: Sequence[Run], newer: Sequence[Run], *, row_deduplicate: bool, ignored: Sequence[str] = ()
    ) -> list[Change]:
        """What the changelog says of ``newer`` runs on top of ``older`` ones."""
        old, new = ([run for run in runs if run.files] for runs in (older, newer))
        if not new:
            return []
        folder = uuid.uuid4().hex
        job = ChangesJob(
            self.plan,
            self.stored(old),
            self.stored(new),
            self.sizes(sum(run.rows for run in new)),
            self.warehouse.uri(*changelog_folder(self.table_id, folder)),
            row_deduplicate,
            tuple(ignored),
        )
        with self.spark.job(folder) as session:
            write_changes(session, job)
        return [(kind, shown_row(self.plan, row)) for kind, row in self.changelog(folder)]

    def changelog(self, folder: str) -> list[Change]:
        """The rows of a changelog folder with their kinds, in the order of its files."""
        found: list[Change] = []
        tokens = []
        for file in read_changelog(self.warehouse, self.table_id, folder):
            path = self.warehouse.path(*changelog_file(self.table_id, file.name))
            rows = pq.read_table(path).to_pylist()
            assert len(rows) == file.rows
            tokens += [row.pop(TOKEN_COLUMN) for row in rows]
            columns = [column.name for column in self.plan.schema.columns]
            found += [(RowKind(row[KIND_COLUMN]), {name: row[name] for name in columns}) for row in rows]
        assert tokens == sorted(tokens), "a changelog is sorted by token"
        return found

    def compact(self, first: int, last: int) -> None:
        chosen = [run for run in self.runs[first:last] if run.files]
        if not chosen:
            return
        run_id = uuid.uuid4().hex
        job = CompactionJob(
            self.plan,
            self.stored(chosen),
            self.sizes(sum(run.rows for run in chosen)),
            self.warehouse.uri(*run_folder(self.table_id, run_id)),
            oldest=first == 0,
            now=self.now,
        )
        with self.spark.job(run_id) as session:
            run_compaction(session, job)
        self.runs[first:last] = [read_run(self.warehouse, self.table_id, run_id, 0)]
        self.plans[run_id] = self.plan

    def combine_here(self, first: int, last: int) -> None:
        """As ``compact``, as a worker does it. Raises ``LeftToSpark``."""
        chosen = [run for run in self.runs[first:last] if run.files]
        if not chosen:
            return
        run_id, rows = uuid.uuid4().hex, sum(run.rows for run in chosen)
        steps, sizes = ColumnSteps.of_compaction(self.plan, self.now, oldest=first == 0), self.sizes(rows)
        written = write_combined_run(self.warehouse, self.table_id, run_id, steps, chosen, sizes, lambda _: None)
        self.runs[first:last] = [read_run(self.warehouse, self.table_id, run_id, 0)]
        self.plans[run_id] = self.plan
        assert self.runs[first].files == tuple(one.file for one in written)
        assert self.runs[first].live_rows == sum(one.live_rows for one in written)

    def sizes(self, rows: int) -> FileSizes:
        return FileSizes(rows, rows, self.target_file_bytes)

    def stored(self, runs: Sequence[Run]) -> tuple[StoredRun, ...]:
        return tuple(StoredRun(self.plans[run.id], stored_files(self.warehouse, self.table_id, run)) for run in runs)

    def overflow(self) -> Mapping[str, Any] | None:
        """What the overflow job finds after the last merge."""
        with self.spark.job(uuid.uuid4().hex) as session:
            return find_overflow(session, OverflowJob(self.plan, self.stored([run for run in self.runs if run.files])))

    def states(self, run: Run) -> Iterator[Row]:
        for file in run.files:
            rows = pq.read_table(self.warehouse.path(*data_file(self.table_id, run.id, file.name))).to_pylist()
            tokens = [row.pop(TOKEN_COLUMN) for row in rows]
            assert tokens == sorted(tokens), "a file is sorted by token"
            assert (tokens[0], tokens[-1]) == (file.min_token, file.max_token)
            yield from rows

    def rows(self) -> Rows:
        """What a lookup of each key finds, whatever plans the runs were written under."""
        found: dict[tuple[Any, ...], list[tuple[MergePlan, Mapping[str, Any]]]] = defaultdict(list)
        for run in self.runs:
            written = self.plans[run.id]
            for state in self.states(run):
                found[tuple(state[name] for name in written.schema.primary_key)].append((written, state))
        folded = {key: combined_row(self.plan, stored) for key, stored in found.items()}
        return {key: None if state is None else finish(self.plan, state) for key, state in folded.items()}
