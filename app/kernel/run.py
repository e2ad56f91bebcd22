"""Run a task: the same function in a Spark worker, in a test and in a benchmark (docs/kernel.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from app.core.errors import Unfoldable
from app.core.plan.merging.merge_plan import compile_plan
from app.core.table.keys import key_to_json
from app.core.table.records import TOKEN_COLUMN
from app.core.table.upkeep.damage import DamagedFile
from app.files.layout import Warehouse, changelog_file, data_file
from app.files.writable import NO_ROOM, reason_of
from app.kernel.blame import blamed_records
from app.kernel.changes import changes_of, input_changes
from app.kernel.fold import compacted, fold_of, folded
from app.kernel.keys import grouped
from app.kernel.lateness.late_records import late_records
from app.kernel.records import record_pieces
from app.kernel.rewrite import rewritten
from app.kernel.runs import combined_window, tokens_in_runs, windows_of
from app.kernel.tasks import Failure, FailureKind, Job, Overflow, Progress, Result, Task, Work, from_text, to_text
from app.kernel.values import UnfoldableValue
from app.kernel.write import Output, run_of, sync_files

logger = logging.getLogger(__name__)
T = TypeVar("T")


def run_tasks(warehouse: Warehouse, tasks: Sequence[Task]) -> list[Result]:
    """Run tasks one after the other and make their files durable. A failed task has a result, too."""
    results = [run_task(warehouse, task) for task in tasks]
    try:
        sync_files(warehouse, [path for task, done in zip(tasks, results, strict=True) for path in _paths(task, done)])
    except OSError as error:  # it is unknown which of the files are durable
        failure = Failure(FailureKind.FAILED, f"what was written could not be made durable: {error}")
        return [result if result.failure else Result(failure=failure) for result in results]
    return results


def _paths(task: Task, result: Result) -> list[tuple[str, ...]]:
    files = [data_file(task.table_id, run_of(task.output, file.partition), file.file.name) for file in result.files]
    changes = [changelog_file(task.table_id, change.name) for change in result.changes]
    pairs = zip(task.rewrites, result.rewritten, strict=False)
    return [*files, *changes, *((*rewrite.folder, new.name) for rewrite, new in pairs if new is not None)]


def run_task(warehouse: Warehouse, task: Task) -> Result:
    """Run one task. Its files are durable after ``sync_files``; a failure is in its result, never raised."""
    try:
        with Output(warehouse, task, compile_plan(task.schema)) as output:
            return _WORK[task.work](warehouse, task, output)
    except DamagedFile as error:
        failure = Failure(FailureKind.DAMAGED, error.message, error.file, error.reason, error.found)
    except UnfoldableValue as error:
        failure = Failure(
            FailureKind.UNFOLDABLE, error.message, column=error.column, key=error.key, batch_number=error.batch_number
        )
    except Unfoldable as error:
        failure = Failure(FailureKind.UNFOLDABLE, error.message)
    except OSError as error:
        logger.warning("a task of table %s failed", task.table_id, exc_info=True)
        full = error.errno in NO_ROOM
        what, fix = ("written", "; make room") if full else ("read or written", "")
        failure = Failure(FailureKind.FAILED, f"the warehouse cannot be {what}: {reason_of(error)}{fix}")
    except Exception as error:
        logger.exception("a task of table %s failed", task.table_id)
        failure = Failure(FailureKind.FAILED, f"{type(error).__name__}: {error}")
    return Result(failure=failure)


def _merge(warehouse: Warehouse, task: Task, output: Output) -> Result:
    fold, rows = fold_of(task.schema), 0
    for piece in record_pieces(warehouse, task):
        groups = grouped(task.schema, piece.tokens, piece.rows)
        with blamed_records(fold.plan, groups, piece.rows, task.now):
            states = folded(fold, groups, piece.rows, task.now)
        output.add(states)
        if task.changelog is not None:
            output.add_changes(input_changes(fold.plan, groups, piece.rows))
        rows += len(piece.rows)
    files, changes = output.close()
    return Result(files, changes, rows)


def _compact(warehouse: Warehouse, task: Task, output: Output) -> Result:
    fold, rows = fold_of(task.schema), 0
    for window in _ahead(windows_of(warehouse, task)):
        state = combined_window(fold.plan, window)
        output.add(compacted(fold, state, task.now, oldest=task.oldest))
        rows += sum(len(run.rows.tokens) for run in window if run is not None)
    files, changes = output.close()
    return Result(files, changes, rows)


def _ahead(pieces: Iterator[T]) -> Generator[T]:
    """Yield the same pieces, each computed in a thread while the caller uses the previous one: Arrow mostly runs
    without the interpreter's lock.
    """
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece


def _changes(warehouse: Warehouse, task: Task, output: Output) -> Result:
    rows = 0
    for read, changes in changes_of(warehouse, task):
        output.add_changes(changes)
        rows += read
    return Result((), output.close()[1], rows)


def _overflow(warehouse: Warehouse, task: Task, _: Output) -> Result:
    plan = compile_plan(task.schema)
    touched = tokens_in_runs(warehouse, task, task.runs[len(task.runs) - task.newer :])
    for window in windows_of(warehouse, task, touched):
        state = combined_window(plan, window)
        for bounds in plan.totals:
            outside = state.filter(state.column(bounds.carry).is_valid())
            if len(outside):
                return Result(overflow=_overflow_in(task, outside, bounds.carry, bounds.column.name, bounds.endless))
    return Result()


def _rewrite(warehouse: Warehouse, task: Task, _: Output) -> Result:
    return Result(rewritten=rewritten(warehouse, task))


def _late(warehouse: Warehouse, task: Task, _: Output) -> Result:
    return Result(late=late_records(warehouse, task))


def _overflow_in(task: Task, rows: pa.Table, carry: str, column: str, endless: object) -> Overflow:
    [state] = rows.drop_columns([TOKEN_COLUMN]).slice(0, 1).to_pylist()
    schema = task.schema
    key = key_to_json(schema, tuple(state[name] for name in schema.primary_key))
    return Overflow(column, key, endless is not None and state[carry] == endless)


_WORK: Mapping[Work, Callable[[Warehouse, Task, Output], Result]] = {
    Work.MERGE: _merge,
    Work.COMPACT: _compact,
    Work.CHANGES: _changes,
    Work.OVERFLOW: _overflow,
    Work.REWRITE: _rewrite,
    Work.LATE: _late,
}


class LocalExecutor:
    """Runs tasks in this process, for tests, simulations and benchmarks. Each is converted to text and back, as with
    Spark.
    """

    def run(self, tag: str, job: Job, report: Progress) -> list[Result]:  # noqa: ARG002  # of the protocol
        """Return a result for each task of the job, in order."""
        warehouse, results = Warehouse(job.warehouse), []
        for number, task in enumerate(job.tasks, 1):
            [result] = run_tasks(warehouse, [from_text(Task, to_text(task))])
            results.append(from_text(Result, to_text(result)))
            report(number / len(job.tasks), {"tasks": len(job.tasks), "tasksDone": number})
        return results
