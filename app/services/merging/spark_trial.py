"""A trial of a Spark Connect server: a small table, merged and compacted by its Python workers and by this process.

Not every server with Spark's protocol is Spark, and its workers may have other packages. Differences are reported
before anything is merged.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from app.core.errors import KeyfoldError, NotSpark, Unavailable
from app.core.plan.merging.merge_plan import compile_plan
from app.core.plan.records.record_decoder import RecordDecoder
from app.core.table.history import Batch, BatchState, Run
from app.core.table.schema import TableSchema
from app.core.types.kinds import Kind
from app.files.folders import remove
from app.files.layout import TRIAL_PREFIX, Warehouse, table_folder
from app.kernel.plan_tasks import Plan, runs_written
from app.kernel.run import LocalExecutor
from app.kernel.tasks import Job, Result, Task, schema_text
from app.services.merging.task_results import error_of
from app.services.shared.executor import MergeExecutor
from app.services.tables.tables import validate_table
from app.storage.runs.runs import check_written
from app.storage.runs.trials import columns_that_differ
from app.storage.staging.staging import write_pieces

logger = logging.getLogger(__name__)
_FUNCTIONS: Final = {
    "total": ("DECIMAL(10, 2)", "sum"),
    "largest": (Kind.INT, "max"),
    "latest": (Kind.STRING, "last_non_null_value"),
    "earliest": (Kind.DOUBLE, "first_value"),
    "words": (Kind.STRING, "listagg"),
    "tags": ("ARRAY<STRING>", "collect"),
    "counts": ("MAP<STRING, INT>", "merge_map"),
    "visitors": ("VARBINARY(1000)", "hll_sketch"),
    "buyers": ("VARBINARY(1000)", "theta_sketch"),
}
_TABLE: Final[Mapping[str, Any]] = {
    "fields": [
        {"name": "id", "type": "BIGINT NOT NULL"},
        {"name": "edited", "type": "TIMESTAMP(3)"},
        {"name": "status", "type": Kind.STRING},
        *({"name": name, "type": sql} for name, (sql, _) in _FUNCTIONS.items()),
    ],
    "primaryKeys": ["id"],
    "options": {
        "merge-engine": "partial-update",
        "fields.edited.sequence-group": ",".join(["status", *_FUNCTIONS]),
        "partial-update.remove-record-on-sequence-group": "edited",
        **{f"fields.{name}.aggregate-function": function for name, (_, function) in _FUNCTIONS.items()},
        **{f"fields.{name}.ignore-retract": "true" for name in _FUNCTIONS},
    },
}
# Of 0, 1 and 2, as base64: what merges unite, none of them makes.
_HLL: Final = ("AgEHBAMIAQDL18IE", "AgEHBAMIAQAr8vsG", "AgEHBAMIAQCGL/kN")
_THETA: Final = ("AQMDAAAazJPla2HuyIBEIA==", "AQMDAAAazJMV+X3LvYahBQ==", "AQMDAAAazJPDl/wSgXCdHg==")
KEYS: Final = 40


def try_spark(warehouse: Warehouse, executor: MergeExecutor, keys: int = KEYS) -> tuple[str, ...]:
    """Return the faults of the Spark server for merges, in words; empty if it is compatible.

    The trial merges ``keys`` rows in a temporary folder of the warehouse, and takes some seconds.

    Raise ``Unavailable`` if Spark does not answer, or its files are not in this warehouse.
    """
    trial = _Trial(warehouse, executor, keys)
    try:
        return executor.missing() or tuple(trial.faults())
    except NotSpark as error:
        return (error.message,)
    except Unavailable:
        raise
    except KeyfoldError as error:
        return (f"a job failed: {error}",)
    except Exception as error:  # of any class: it is said, and nothing is merged
        logger.debug("the trial of Spark failed", exc_info=True)
        return (f"a job failed: {_first_line(error)}",)
    finally:
        trial.clear()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:500]


@dataclass
class _Trial:
    """The files of the trial table."""

    warehouse: Warehouse
    executor: MergeExecutor
    keys: int
    table_id: str = field(default_factory=lambda: f"{TRIAL_PREFIX}{uuid.uuid4().hex}")
    schema: TableSchema = field(default_factory=lambda: validate_table("trial", _TABLE))
    batches: int = 0

    def faults(self) -> Iterator[str]:
        """Run two merges and a compaction on Spark and in process; yield each difference.

        Raise the error of a failed task.
        """
        first = [self._staged(self._records(0, 1)), self._staged(self._records(1, -1))]
        runs = []
        late = {"id": 3, "_kind": "-D", "edited": "2026-01-09T00:00:00"}
        for number, batches in enumerate((first, [self._staged([*self._records(2, 1), late])]), 1):
            results = [self._run(executor, self._merge(batches)) for executor in (self.executor, LocalExecutor())]
            yield from self._unlike(f"merge {number}", *results)
            runs.append(results[-1])
        compacted = [self._run(executor, self._compaction(runs)) for executor in (self.executor, LocalExecutor())]
        yield from self._unlike("a compaction", *compacted)

    @property
    def _plan(self) -> Plan:
        return Plan(self.table_id, {"0": schema_text(self.schema)}, 0, now=1, file_bytes=2**20)

    def _merge(self, batches: Sequence[Batch]) -> list[Task]:
        return self._plan.merge(batches, uuid.uuid4().hex, None)

    def _compaction(self, runs: Sequence[Run]) -> list[Task]:
        return self._plan.compaction(runs, uuid.uuid4().hex, oldest=True)

    def _run(self, executor: MergeExecutor | LocalExecutor, tasks: Sequence[Task]) -> Run:
        job = Job(self.warehouse.address, "a trial of Spark", tuple(tasks))
        results: Sequence[Result] = executor.run(f"trial-{uuid.uuid4().hex}", job, lambda *_: None)
        failures = [result.failure for result in results if result.failure]
        if failures:
            raise error_of(failures[0])
        [run] = runs_written(tasks[0].output, 0, results)
        check_written(self.warehouse, self.table_id, [run])
        return run

    def _unlike(self, work: str, actual: Run, expected: Run) -> Iterator[str]:
        columns = columns_that_differ(self.warehouse, self.table_id, actual, expected)
        if columns:
            yield f"{work} folds otherwise there than here: {', '.join(columns)}"

    def _staged(self, records: Sequence[Mapping[str, Any]]) -> Batch:
        self.batches += 1
        decoded = RecordDecoder(compile_plan(self.schema)).decode(list(records))
        batch_id = uuid.uuid4().hex
        staged = write_pieces(self.warehouse, self.table_id, batch_id, self.schema, [decoded])
        return Batch(
            batch_id,
            self.table_id,
            self.batches,
            BatchState.STAGED,
            0,
            staged.file,
            staged.records,
            staged.ignored,
            staged.size,
            "",
            None,
            datetime.now(UTC),
            None,
            None,
            staged.digest,
        )

    def _records(self, batch: int, step: int) -> list[Mapping[str, Any]]:
        """Return one record per key; every third is older than the previous one, every seventh names few columns."""
        return [_record(batch, number) for number in range(self.keys)[::step]]

    def clear(self) -> None:
        """Remove the files; remaining ones are garbage-collected as the folder of no table."""
        try:
            remove(self.warehouse, self.warehouse.path(*table_folder(self.table_id)))
        except OSError:
            logger.info("the folder of a trial of Spark stays until it is swept", exc_info=True)


def _record(batch: int, number: int) -> Mapping[str, Any]:
    day = 5 - batch if number % 3 == 0 else 5 + batch
    few = {"id": number, "edited": f"2026-01-{day:02}T00:00:00", "status": f"{batch}-{number}"}
    if number % 7 == batch:
        return few
    return few | {
        "total": f"{number}.{batch}5",
        "largest": number * (1 - 2 * (batch % 2)),
        "latest": None if number % 5 == batch else f"latest {batch}",
        "earliest": batch + 0.5,
        "words": f"w{batch}",
        "tags": [f"t{batch}", "both"],
        "counts": {f"k{batch}": number, "both": batch},
        "visitors": _HLL[batch],
        "buyers": _THETA[batch],
    }
