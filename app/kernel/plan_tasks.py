"""Plans the tasks of merges and compactions, and reads the written runs and changes from their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from app.core.table.history import Batch, ChangelogFile, Run
from app.core.table.total_ranges import joined
from app.kernel.tasks import LEAST_TOKEN, Result, Task, Work, WrittenFile
from app.kernel.write import run_of

ROWS_PER_TASK: Final = 1_000_000  # about a second of work
_TOKENS: Final = 2**64


@dataclass(frozen=True)
class Plan:
    """The values that all tasks of one merge or compaction share.

    ``schemas`` are JSON texts by number, ``schema_id`` is that of written files. ``now`` is in epoch seconds,
    ``file_bytes`` the size that a data file shall have at most.
    """

    table_id: str
    schemas: Mapping[str, str]
    schema_id: int
    now: int
    file_bytes: int

    def merge(self, batches: Sequence[Batch], output: str, changelog: str | None) -> list[Task]:
        """Return the tasks that fold ``batches``; with a ``changelog`` folder the records are kept there, too."""
        rows, size = sum(batch.records for batch in batches), sum(batch.size_bytes for batch in batches)
        ranges = _ranges(self._count(rows, size))
        return [
            self._task(Work.MERGE, place, tokens, output=output, batches=tuple(batches), changelog=changelog)
            for place, tokens in enumerate(ranges)
        ]

    def compaction(self, runs: Sequence[Run], output: str, *, oldest: bool) -> list[Task]:
        """Return the tasks that combine neighbouring ``runs`` of one partition, oldest first, into a run.

        ``oldest``: there is no older run.
        """
        return self._of_runs(Work.COMPACT, runs, len(runs), output=output, oldest=oldest, partition=runs[0].partition)

    def changes(self, runs: Sequence[Run], newer: int, changelog: str, wanted: Mapping[str, Any]) -> list[Task]:
        """Return the tasks that write the changes by the last ``newer`` of ``runs``, all of one partition.

        ``wanted``: ``row_deduplicate`` and ``ignored_fields`` of the tasks.
        """
        return self._of_runs(Work.CHANGES, runs, newer, changelog=changelog, **wanted)

    def overflow(self, runs: Sequence[Run], newer: int) -> list[Task]:
        """Return the tasks that look for totals outside their type in the keys of the last ``newer`` of ``runs``."""
        return self._of_runs(Work.OVERFLOW, runs, newer)

    def late_records(self, batches: Sequence[Batch], older: Sequence[Run], most_rows: int) -> list[Task]:
        """Return the tasks that count the late records of ``batches``, which were folded above the ``older`` runs.

        Beyond ``most_rows`` older rows they only cover the first of all ranges of tokens.
        """
        records, rows = sum(batch.records for batch in batches), sum(run.rows for run in older)
        count = self._count(records + rows, 0)
        covered = count if rows <= most_rows else max(1, count * most_rows // rows)
        return [
            self._task(
                Work.LATE,
                place,
                (first, last),
                batches=tuple(batches),
                runs=tuple(part for run in older if (part := _within(run, first, last)).files),
            )
            for place, (first, last) in enumerate(islice(_ranges(count), covered))
        ]

    def _of_runs(self, work: Work, runs: Sequence[Run], newer: int, **members: Any) -> list[Task]:
        """Return a task for each range of tokens in which the ``newer`` runs have files."""
        rows, size = sum(run.rows for run in runs), sum(run.size_bytes for run in runs)
        tasks = []
        for place, (first, last) in enumerate(_ranges(self._count(rows, size))):
            parts = tuple(_within(run, first, last) for run in runs)
            if any(run.files for run in parts[len(parts) - newer :]):
                tasks.append(self._task(work, place, (first, last), runs=parts, newer=newer, **members))
        return tasks

    def _task(self, work: Work, place: int, tokens: tuple[int, int], *, output: str = "", **members: Any) -> Task:
        first, last = tokens
        return Task(
            work,
            self.table_id,
            self.schemas,
            self.schema_id,
            output,
            self.now,
            first_token=first,
            last_token=last,
            place=place,
            **members,
        )

    def _count(self, rows: int, size: int) -> int:
        """Return a power of two, so that the ranges of a table that grows are halves of those before.

        It is less than twice ``rows``, so that a table with tiny files has no tasks without rows.
        """
        count = 1
        while count < rows and (count * ROWS_PER_TASK < rows or count * self.file_bytes < size):
            count *= 2
        return count


def _ranges(count: int) -> Iterator[tuple[int, int]]:
    """Return the first and the last token of ``count`` (a power of two) equal ranges."""
    width = _TOKENS // count
    for place in range(count):
        yield LEAST_TOKEN + place * width, LEAST_TOKEN + (place + 1) * width - 1


def _within(run: Run, first: int, last: int) -> Run:
    files = tuple(file for file in run.files if first <= file.max_token and file.min_token <= last)
    return run if len(files) == len(run.files) else replace(run, files=files)


def runs_written(output: str, schema_id: int, results: Sequence[Result]) -> tuple[Run, ...]:
    """Return the run of each partition that tasks wrote files of; ``results`` come by token."""
    by_partition: dict[str | None, list[WrittenFile]] = {}
    for written_file in (file for result in results for file in result.files):
        by_partition.setdefault(written_file.partition, []).append(written_file)
    return tuple(
        Run(
            run_of(output, partition),
            schema_id,
            tuple(written_file.file for written_file in files),
            partition,
            live_rows=sum(written_file.live_rows for written_file in files),
            totals=joined(written_file.totals for written_file in files),
        )
        for partition, files in by_partition.items()
    )


def changes_written(results: Sequence[Result]) -> tuple[ChangelogFile, ...]:
    """Return the files of changes that tasks wrote, by token."""
    return tuple(file for result in results for file in result.changes)
