"""Runs the tasks of merges and compactions, and raises the failures in their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.core.errors import Unfoldable
from app.core.table.history import Table
from app.core.table.upkeep.damage import DamagedFile, NamedFile
from app.files.named_files import damaged_files, file_of_batch, files_of_run
from app.files.writable import check_not_gone
from app.kernel.plan_tasks import Plan
from app.kernel.tasks import Failure, FailureKind, Job, Progress, Result, Task, schema_text
from app.services.merging.leases import Lease
from app.services.shared.damage import note
from app.services.shared.executor import MergeSite


class TaskFailed(Exception):
    """A task failed for a reason other than its input; a retry may succeed."""


def plan_of(site: MergeSite, table: Table, schema_ids: Iterable[int]) -> Plan:
    """Return the plan that the tasks of a merge or compaction of ``table`` share; its files have the schemas
    ``schema_ids``.
    """
    schemas = {table.schema_id: table.schema}
    others = set(schema_ids) - set(schemas)
    if others:
        with site.database.reading() as repository:
            schemas |= {number: repository.tables.schema_at(table.id, number) for number in others}
    texts = {str(number): schema_text(schema) for number, schema in schemas.items()}
    return Plan(table.id, texts, table.schema_id, int(site.clock()), table.schema.parsed["target-file-size"])


def run_tasks(lease: Lease, tasks: Sequence[Task], report: Progress) -> list[Result]:
    """Run tasks as one job under the lease; return their results, in order.

    Raise ``DamagedFile`` for a damaged input, which is recorded; ``Unfoldable`` for records that cannot be folded;
    ``Unavailable`` if the warehouse is gone; ``TaskFailed`` for anything else.
    """
    site, claimed = lease.site, lease.claimed
    title = f"{claimed.task.kind} {claimed.task.id} of {claimed.table.full_name}"
    results = site.executor.run(lease.tag, Job(site.warehouse.address, title, tuple(tasks)), report)
    check_not_gone(site.warehouse)  # from here on the files of the tasks are checked
    raise_failures(site, tasks, results)
    return results


def raise_failures(site: MergeSite, tasks: Sequence[Task], results: Sequence[Result]) -> None:
    """Raise the error of the first failed result. If a file is damaged, record every damaged input."""
    errors = [error_of(result.failure) for result in results if result.failure is not None]
    damaged = [error for error in errors if isinstance(error, DamagedFile)]
    if damaged:
        by_path = {error.file.path: error for error in (*damaged_files(site.warehouse, _inputs(tasks)), *damaged)}
        note(site.database, [*by_path.values()])
        raise damaged[0]
    if errors:
        raise errors[0]


def _inputs(tasks: Sequence[Task]) -> list[NamedFile]:
    """Return the distinct input files of tasks."""
    by_path: dict[str, NamedFile] = {}
    for task in tasks:
        files = [file_of_batch(batch) for batch in task.batches]
        files += [file for run in task.runs for file in files_of_run(task.table_id, run)]
        by_path |= {file.path: file for file in files}
    return [*by_path.values()]


def error_of(failure: Failure) -> Exception:
    """Return the error for a failure."""
    if failure.kind is FailureKind.DAMAGED and failure.file is not None and failure.reason is not None:
        return DamagedFile(failure.file, failure.reason, failure.found)
    unfoldable = failure.kind is FailureKind.UNFOLDABLE
    return Unfoldable(failure.message, failure.batch_number) if unfoldable else TaskFailed(failure.message)
