"""Small compactions: never a job of Spark, which costs more than they are (docs/decisions/0042)."""

from __future__ import annotations

from typing import Final

from app.catalog.repository import Repository
from app.core.plan.jobs import CompactionJob
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.table.option_entries import ChangelogProducer
from app.services.small_merges import folds_here

MOST_VALUES: Final = 100_000  # state rows of all runs, times the columns of one: some 0.2 s of CPU at most
MOST_BYTES: Final = 8 * 2**20  # of files
MOST_FILES: Final = 200  # each is about a millisecond


def is_small(job: CompactionJob) -> bool:
    """Whether a compaction of runs of the present schema is small."""
    return _are_few(job.plan, job.sizes.rows, job.sizes.size_bytes, sum(len(run.files) for run in job.runs))


def is_small_table(repository: Repository, table_id: str) -> bool:
    """Whether whatever is compacted of the table is small: all its runs together are few. Raises ``NotFound``."""
    table, current = repository.tables.existing(table_id), repository.snapshots.current(table_id)
    runs = current.runs if current else ()
    told = table.schema.parsed["changelog-producer"] is ChangelogProducer.FULL_COMPACTION
    here = not told and all(run.schema_id == table.schema_id for run in runs)
    return here and _are_few(
        compile_plan(table.schema),
        sum(run.rows for run in runs),
        sum(run.size_bytes for run in runs),
        sum(len(run.files) for run in runs),
    )


def compacts_here(plan: MergePlan) -> bool:
    """Whether compacted state rows of the plan are stored by this process as Spark stores them: what one stores of logs
    is not the same there.
    """
    return folds_here(plan) and not plan.settles


def _are_few(plan: MergePlan, rows: int, size_bytes: int, files: int) -> bool:
    few = rows * len(plan.state_columns) <= MOST_VALUES and files <= MOST_FILES and size_bytes <= MOST_BYTES
    return few and compacts_here(plan)
