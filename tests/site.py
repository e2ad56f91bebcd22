"""One table's files, merged and compacted by the kernel: in this process, or by any executor."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.plan.merging.evolution import combined_row
from app.core.plan.merging.fold import finish, shown_row
from app.core.plan.merging.merge_plan import MergePlan
from app.core.plan.records.record_decoder import DecodedRecords
from app.core.table.history import Batch, BatchState, ChangelogFile, Run
from app.core.table.named_columns import named_words, words_naming
from app.core.table.records import KIND_COLUMN, KINDS_BY_TEXT, TOKEN_COLUMN, RowKind
from app.files.layout import Warehouse, changelog_file, data_file
from app.kernel.plan_tasks import runs_written
from app.kernel.run import LocalExecutor
from app.kernel.tasks import LEAST_TOKEN, MOST_TOKEN, Job, Overflow, Progress, Result, Task, Work, schema_text
from app.storage.staging.staging import write_pieces
from tests import oracle

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row | None]
Change = tuple[RowKind, Row]


class Executor(Protocol):
    def run(self, tag: str, job: Job, report: Progress) -> Sequence[Result]: ...


class Site:
    """One table's files. ``plan`` may be replaced: runs and batches keep the number of the schema of their time."""

    def __init__(self, folder: Path, plan: MergePlan, executor: Executor | None = None) -> None:
        self.plan = plan
        self.warehouse = Warehouse(str(folder))
        self.executor = executor or LocalExecutor()
        self.table_id = uuid.uuid4().hex
        self.now = 1_000
        self.runs: list[Run] = []
        self.batches: list[Batch] = []
        self.schemas: list[MergePlan] = []
        self.ranges = 1  # of tokens, a task for each

    @property
    def schema_id(self) -> int:
        if self.plan not in self.schemas:
            self.schemas.append(self.plan)
        return self.schemas.index(self.plan)

    def stage(self, changes: Sequence[oracle.Change]) -> Batch:
        kept = [(i, c) for i, c in enumerate(changes) if KINDS_BY_TEXT[c.kind] not in self.plan.dropped]
        decoded = DecodedRecords(
            {column.name: [c.values[column.name] for _, c in kept] for column in self.plan.schema.columns},
            [int(KINDS_BY_TEXT[c.kind]) for _, c in kept],
            [i for i, _ in kept],
            words=self._words([c for _, c in kept]),
        )
        return self.stage_decoded(decoded)

    def stage_decoded(self, decoded: DecodedRecords) -> Batch:
        batch_id = uuid.uuid4().hex
        staged = write_pieces(self.warehouse, self.table_id, batch_id, self.plan.schema, [decoded])
        posted = datetime(2024, 1, 1, tzinfo=UTC)
        number = len(self.batches) + 1
        batch = Batch(
            batch_id, self.table_id, number, BatchState.STAGED, self.schema_id, staged.file, staged.records,
            0, staged.size, "", None, posted, None, None, staged.digest,
        )  # fmt: skip
        self.batches.append(batch)
        return batch

    def _words(self, changes: Sequence[oracle.Change]) -> dict[str, list[int]]:
        schema = self.plan.schema
        named = [words_naming(schema.columns, change.named) for change in changes]
        return {word: [words[word] for words in named] for word in named_words(schema)}

    def merge(self, batches: Sequence[Sequence[oracle.Change]], *, keeps_input: bool = False) -> str:
        return self.merge_staged([self.stage(changes) for changes in batches], keeps_input=keeps_input)

    def merge_staged(self, staged: Sequence[Batch], *, keeps_input: bool = False) -> str:
        """Merge batches under the present plan; the folder of the new runs, and of their changes where kept."""
        folder = uuid.uuid4().hex
        results = self.run(Work.MERGE, folder, batches=tuple(staged), changelog=folder if keeps_input else None)
        self.kept_changes = [file for result in results for file in result.changes]
        self.runs += self.runs_of(folder, results)
        return folder

    def compact(self, first: int, last: int) -> None:
        chosen = tuple(run for run in self.runs[first:last] if run.files)
        if chosen:
            folder = uuid.uuid4().hex
            results = self.run(Work.COMPACT, folder, runs=chosen, oldest=first == 0)
            self.runs[first:last] = self.runs_of(folder, results)

    def changes(
        self, older: Sequence[Run], newer: Sequence[Run], *, row_deduplicate: bool, ignored: Sequence[str] = ()
    ) -> list[Change]:
        """What the changelog says of ``newer`` runs on top of ``older`` ones."""
        folder = uuid.uuid4().hex
        results = self.run(
            Work.CHANGES, folder, runs=(*older, *newer), newer=len(newer), changelog=folder,
            row_deduplicate=row_deduplicate, ignored_fields=tuple(ignored),
        )  # fmt: skip
        files = [file for result in results for file in result.changes]
        return [(kind, shown_row(self.plan, row)) for kind, row in self.changelog(files)]

    def changelog(self, files: Sequence[ChangelogFile]) -> list[Change]:
        found: list[Change] = []
        tokens = []
        for file in files:
            rows = pq.read_table(self.warehouse.path(*changelog_file(self.table_id, file.name))).to_pylist()
            assert len(rows) == file.rows
            tokens += [row.pop(TOKEN_COLUMN) for row in rows]
            columns = [column.name for column in self.plan.schema.columns]
            found += [(RowKind(row[KIND_COLUMN]), {name: row[name] for name in columns}) for row in rows]
        assert tokens == sorted(tokens), "a changelog is sorted by token"
        return found

    def overflow(self) -> Overflow | None:
        """What the overflow check finds after the last merge."""
        results = self.run(Work.OVERFLOW, "", runs=tuple(self.runs), newer=1)
        return next((result.overflow for result in results if result.overflow), None)

    def run(self, work: Work, folder: str, **of_task: Any) -> Sequence[Result]:
        number = self.schema_id
        schemas = {str(n): schema_text(plan.schema) for n, plan in enumerate(self.schemas)}
        tasks = [
            Task(
                work, self.table_id, schemas, number, folder, self.now,
                first_token=first, last_token=last, place=place, **of_task,
            )
            for place, (first, last) in enumerate(self._ranges())
        ]  # fmt: skip
        results = self.executor.run(folder, Job(self.warehouse.address, "a test", tuple(tasks)), lambda *_: None)
        for result in results:
            assert result.failure is None, result.failure
        return results

    def _ranges(self) -> Iterator[tuple[int, int]]:
        bounds = [LEAST_TOKEN + place * (2**64 // self.ranges) for place in range(self.ranges)]
        yield from zip(bounds, [*(bound - 1 for bound in bounds[1:]), MOST_TOKEN], strict=True)

    def runs_of(self, folder: str, results: Sequence[Result]) -> list[Run]:
        return list(runs_written(folder, self.schema_id, results))

    def plan_of(self, run: Run) -> MergePlan:
        return self.schemas[run.schema_id]

    def table(self, run: Run) -> pa.Table:
        return pa.concat_tables(
            [pq.read_table(self.warehouse.path(*data_file(self.table_id, run.id, file.name))) for file in run.files]
        )

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
            written = self.plan_of(run)
            for state in self.states(run):
                found[tuple(state[name] for name in written.schema.primary_key)].append((written, state))
        folded = {key: combined_row(self.plan, stored) for key, stored in found.items()}
        return {key: None if state is None else finish(self.plan, state) for key, state in folded.items()}
