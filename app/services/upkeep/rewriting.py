"""Files of a table without some keys: tasks on the executor look for the keys, and write what holds them again
without them (docs/decisions/0036).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.core.table.history import Batch, ChangelogFile, DataFile, HistoryFile, Run, Table
from app.core.table.schema import TableSchema
from app.core.table.upkeep.damage import NamedFile
from app.core.table.upkeep.forgetting import Sought
from app.files.layout import changelog_folder, history_file, run_folder, staging_file
from app.files.named_files import file_of_batch, file_of_changelog, file_of_history, file_of_run
from app.files.writable import check_not_gone
from app.kernel.tasks import Job, Rewrite, RewrittenFile, Task, Work, schema_text
from app.services.merging.task_results import error_of
from app.services.shared.executor import MergeSite
from app.storage.runs.linked_files import link_files

# A task searches files of about this size, a second's work.
TASK_BYTES: Final = 64 * 2**20


@dataclass(frozen=True)
class RewrittenRun:
    """The rewritten run, None if no row is left, and the number of removed rows."""

    run: Run | None
    removed: int


@dataclass(frozen=True)
class _Searched:
    """A file to look into, the number of its schema, and the keys that it may hold."""

    rewrite: Rewrite
    schema_id: int
    sought: Sought

    def goes_with(self, other: _Searched) -> bool:
        """Return whether one task can look into both."""
        return self.schema_id == other.schema_id and self.sought == other.sought


class Rewriting:
    """Looks for keys in files of one table. ``add_…`` adds files, ``run`` searches them; then ``…_without`` returns the
    replacement of files that held keys, or None if they held none.
    """

    def __init__(self, site: MergeSite, table: Table, schemas: Mapping[int, TableSchema]) -> None:
        """``schemas`` are those of all files, by number."""
        self._site = site
        self._table = table
        self._schemas = schemas
        self._searched: list[_Searched] = []
        self._rewritten: dict[str, RewrittenFile | None] = {}
        self._run_ids: dict[str, str] = {}
        self._changelogs: dict[int, str] = {}

    def add_run(self, run: Run, sought: Sought) -> None:
        """Look into those files of a run that have tokens of the keys."""
        _folder, _, partition = run.id.partition(".")
        new = f"{uuid.uuid4().hex}.{partition}" if partition else uuid.uuid4().hex
        self._run_ids[run.id] = new
        for file in run.files:
            named = file_of_run(self._table.id, run.id, file)
            near = sought.between(file.min_token, file.max_token)
            self._add(named, run_folder(self._table.id, new), run.schema_id, near)

    def add_changes(self, snapshot_id: int, files: Sequence[ChangelogFile], schema_id: int, sought: Sought) -> None:
        """Look into the changelog of a snapshot."""
        self._changelogs[snapshot_id] = uuid.uuid4().hex
        for file in files:
            named = file_of_changelog(self._table.id, snapshot_id, file)
            self._add(named, changelog_folder(self._table.id, self._changelogs[snapshot_id]), schema_id, sought)

    def add_history(self, file: HistoryFile, sought: Sought) -> None:
        """Look into a history file."""
        folder = history_file(self._table.id, file.name)[:-1]
        self._add(file_of_history(self._table.id, file), folder, file.schema_id, sought)

    def add_batch(self, batch: Batch, sought: Sought) -> None:
        """Look into the staging file of a batch."""
        self._add(file_of_batch(batch), staging_file(self._table.id, batch.file)[:-1], batch.schema_id, sought)

    def run(self) -> None:
        """Have the tasks done as one job. Raise ``DamagedFile``, ``TaskFailed`` and ``Unavailable``."""
        tasks = [*self._tasks()]
        if not tasks:
            return
        job = Job(self._site.warehouse.address, f"forgetting keys of {self._table.full_name}", tuple(tasks))
        results = self._site.executor.run(f"forgetting-{uuid.uuid4().hex}", job, lambda *_: None)
        if failure := next((result.failure for result in results if result.failure is not None), None):
            raise error_of(failure)
        check_not_gone(self._site.warehouse)  # what the tasks wrote is looked for from here on
        for task, result in zip(tasks, results, strict=True):
            pairs = zip(task.rewrites, result.rewritten, strict=True)
            self._rewritten.update((rewrite.file.path, new) for rewrite, new in pairs)

    def run_without(self, run: Run) -> RewrittenRun | None:
        """Return the run without the rows of the keys."""
        new_by_name = self._new({file.name: file_of_run(self._table.id, run.id, file) for file in run.files})
        if not new_by_name:
            return None
        new_id = self._run_ids[run.id]
        files: list[DataFile] = []
        for file in run.files:
            new = new_by_name.get(file.name)
            if new is None:
                files.append(file)
            elif new.rows:
                files.append(_data_file(new))
        same = [file.name for file in run.files if file.name not in new_by_name]
        link_files(self._site.warehouse, run_folder(self._table.id, run.id), run_folder(self._table.id, new_id), same)
        removed = sum(new.removed for new in new_by_name.values())
        if not files:
            return RewrittenRun(None, removed)
        live = None if run.live_rows is None else run.live_rows - sum(new.live for new in new_by_name.values())
        return RewrittenRun(replace(run, id=new_id, files=tuple(files), live_rows=live), removed)

    def changes_without(self, snapshot_id: int, files: Sequence[ChangelogFile]) -> list[ChangelogFile] | None:
        """Return the changelog of a snapshot without the changes of the keys."""
        new_by_name = self._new({file.name: file_of_changelog(self._table.id, snapshot_id, file) for file in files})
        if not new_by_name:
            return None
        folder = self._changelogs[snapshot_id]
        left: list[ChangelogFile] = []
        for file in files:
            new = new_by_name.get(file.name)
            if new is None:
                old, _, name = file.name.partition("/")
                source = changelog_folder(self._table.id, old)
                link_files(self._site.warehouse, source, changelog_folder(self._table.id, folder), [name])
                left.append(replace(file, name=f"{folder}/{name}"))
            elif new.rows:
                name = f"{folder}/{new.name}"
                left.append(ChangelogFile(name, new.rows, new.size_bytes, new.digest, new.block_digests))
        return left

    def history_without(self, file: HistoryFile) -> HistoryFile | None:
        """Return the history file without the records of the keys; None if it need not change."""
        new = self._rewritten.get(file_of_history(self._table.id, file).path)
        if new is None:
            return None
        return replace(
            file,
            name=new.name,
            records=new.rows,
            size_bytes=new.size_bytes,
            digest=new.digest,
            block_digests=new.block_digests,
        )

    def batch_without(self, batch: Batch) -> Batch | None:
        """Return the batch without the records of the keys; None if its file need not change."""
        new = self._rewritten.get(file_of_batch(batch).path)
        if new is None:
            return None
        return replace(batch, file=new.name, records=new.rows, size_bytes=new.size_bytes, digest=new.digest)

    def _add(self, file: NamedFile, folder: tuple[str, ...], schema_id: int, sought: Sought) -> None:
        if sought.keys:
            self._searched.append(_Searched(Rewrite(file, folder), schema_id, sought))

    def _new(self, files: Mapping[str, NamedFile]) -> dict[str, RewrittenFile]:
        """Return what became of those of ``files`` that held keys, by name."""
        new_by_name = {name: self._rewritten.get(file.path) for name, file in files.items()}
        return {name: new for name, new in new_by_name.items() if new is not None}

    def _tasks(self) -> Iterator[Task]:
        """Yield tasks of about ``TASK_BYTES`` each; the files of a task have one schema and may hold the same keys."""
        group: list[_Searched] = []
        filled = 0
        for searched in self._searched:
            size = searched.rewrite.file.size_bytes
            if group and (filled + size > TASK_BYTES or not searched.goes_with(group[0])):
                yield self._task(group)
                group, filled = [], 0
            group.append(searched)
            filled += size
        if group:
            yield self._task(group)

    def _task(self, group: Sequence[_Searched]) -> Task:
        schema_id = group[0].schema_id
        return Task(
            Work.REWRITE,
            self._table.id,
            {str(schema_id): schema_text(self._schemas[schema_id])},
            schema_id,
            output="",
            now=int(self._site.clock()),
            rewrites=tuple(searched.rewrite for searched in group),
            sought=group[0].sought,
        )


def _data_file(new: RewrittenFile) -> DataFile:
    first, last = new.tokens
    return DataFile(new.name, new.rows, new.size_bytes, first, last, new.digest, new.block_digests)
