"""A trial of a Spark Connect server: a small table merged and compacted by it, beside the same fold in Python.

Servers that speak Spark's protocol are not all Spark, and what one leaves out is not told by its version: sorts that
are dropped before a write, Parquet field ids that nobody reads or writes, functions that answer something else. None of
that fails; all of it would be wrong rows, or files that other engines misread.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from app.core.errors import KeyfoldError, NotSpark, Unavailable
from app.core.plan.fold import combine, finish, lift
from app.core.plan.jobs import CompactionJob, FileSizes, Job, MergeJob, StoredRun
from app.core.plan.merge_plan import MergePlan, compile_plan
from app.core.plan.record_decoder import RecordDecoder
from app.core.rules.rule import State
from app.core.table.history import Run
from app.core.table.named_columns import names_in
from app.core.table.records import Record, RowKind, arrival
from app.core.types.kinds import Kind
from app.services.executor import MergeExecutor
from app.services.tables import validate_table
from app.storage.folders import remove
from app.storage.layout import TRIAL_PREFIX, Warehouse, run_folder, staging_file, table_folder
from app.storage.runs import read_run, stored_files
from app.storage.staging import write_batch
from app.storage.trials import trial_rows

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
Shown = Mapping[int, Mapping[str, Any] | None]


def try_spark(warehouse: Warehouse, executor: MergeExecutor, keys: int = KEYS) -> tuple[str, ...]:
    """What the server does otherwise than merges need, in words; empty where it does all. Takes a folder in the
    warehouse, which is gone afterwards, and some seconds. ``keys``: of how many rows.

    Raises ``Unavailable`` when Spark does not answer, or its files are not in this warehouse.
    """
    trial = _Trial(warehouse, executor, keys)
    try:
        return tuple(trial.faults())
    except NotSpark as error:
        return (error.message,)
    except Unavailable:
        raise
    except KeyfoldError as error:
        return (f"a job failed: {error}",)
    except Exception as error:  # whatever class the server's failure has: it is told, and nothing is merged
        logger.debug("the trial of Spark failed", exc_info=True)
        return (f"a job failed: {_first_line(error)}",)
    finally:
        trial.clear()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:500]


@dataclass
class _Trial:
    """The table's files, and the records that are in them."""

    warehouse: Warehouse
    executor: MergeExecutor
    keys: int
    table_id: str = field(default_factory=lambda: f"{TRIAL_PREFIX}{uuid.uuid4().hex}")
    plan: MergePlan = field(default_factory=lambda: compile_plan(validate_table("trial", _TABLE)))
    records: list[Record] = field(default_factory=list)
    batches: int = 0

    def faults(self) -> Iterator[str]:
        """Two merges and a compaction of both."""
        first = self._merge([self._records(0, 1), self._records(1, -1)])
        yield from self._told("a merge of two batches", [first])
        second = self._merge([[*self._records(2, 1), {"id": 3, "_kind": "-D", "edited": "2026-01-09T00:00:00"}]])
        yield from self._told("a second merge", [first, second])
        yield from self._told("a compaction", [self._compact([first, second])])

    @property
    def _sizes(self) -> FileSizes:
        return FileSizes(rows=self.keys, size_bytes=self.keys * 100, target_file_bytes=2**20)

    def _records(self, batch: int, step: int) -> list[Mapping[str, Any]]:
        """A record of each key; every third is older than what came before it, every seventh names few columns."""
        return [_record(batch, number) for number in range(self.keys)[::step]]

    def clear(self) -> None:
        """Removes the files; what stays is swept as the folder of no table."""
        try:
            remove(self.warehouse, self.warehouse.path(*table_folder(self.table_id)))
        except OSError:
            logger.info("the folder of a trial of Spark stays until it is swept", exc_info=True)

    def _merge(self, batches: Sequence[Sequence[Mapping[str, Any]]]) -> Run:
        staged = {}
        for raw in batches:
            self.batches += 1
            decoded = RecordDecoder(self.plan).decode(list(raw))
            name, _ = write_batch(self.warehouse, self.table_id, uuid.uuid4().hex, self.plan.schema, decoded)
            staged[self.warehouse.spark_uri(*staging_file(self.table_id, name))] = self.batches
            for row, kind in enumerate(decoded.kinds):
                values = {name: column[row] for name, column in decoded.columns.items()}
                words = {word: bits[row] for word, bits in decoded.words.items()}
                named = names_in(self.plan.schema, words)
                self.records.append(Record(RowKind(kind), values, arrival(self.batches, row), named))
        return self._run(lambda output: MergeJob(self.plan, staged, self._sizes, output, now=1))

    def _compact(self, runs: Sequence[Run]) -> Run:
        stored = tuple(StoredRun(self.plan, stored_files(self.warehouse, self.table_id, run)) for run in runs)
        return self._run(lambda output: CompactionJob(self.plan, stored, self._sizes, output, now=1, oldest=True))

    def _run(self, job_of: Callable[[str], Job]) -> Run:
        run_id = uuid.uuid4().hex
        job = job_of(self.warehouse.spark_uri(*run_folder(self.table_id, run_id)))
        self.executor.run(f"trial-{run_id}", job, lambda *_: None)
        run = read_run(self.warehouse, self.table_id, run_id, 0)
        if not run.files:
            raise Unavailable("Spark wrote files that are not in this warehouse; give both the same KEYFOLD_WAREHOUSE")
        return run

    def _told(self, job: str, runs: Sequence[Run]) -> Iterator[str]:
        """What is wrong with the files of the newest of ``runs``, and with the rows that all of them show."""
        rows = [trial_rows(self.warehouse, self.table_id, run, self.plan.schema) for run in runs]
        newest = rows[-1]
        if not newest.sorted:
            yield f"{job} wrote rows that are not in the order that was asked for: sorts before a write are left out"
        if newest.without_ids:
            yield f"{job} wrote no Parquet field ids of {', '.join(newest.without_ids)}"
        folded = self._folded(self.records)
        found = self._combined([dict(state) for one in rows for state in one.states])
        for name in self.plan.schema.by_name:
            wrong = [key for key in folded if _value(folded, key, name) != _value(found, key, name)]
            if wrong:
                told = f"{_value(found, wrong[0], name)!r} instead of {_value(folded, wrong[0], name)!r}"
                yield f"{job} folds the column {name} ({self._rule(name)}) to other values: {told[:300]}"

    def _rule(self, name: str) -> str:
        return _FUNCTIONS[name][1] if name in _FUNCTIONS else "the latest by its sequence"

    def _folded(self, records: Sequence[Record]) -> Shown:
        return self._combined([lift(self.plan, record) for record in records])

    def _combined(self, states: Sequence[State]) -> Shown:
        of_key: dict[int, list[State]] = defaultdict(list)
        for state in states:
            of_key[state["id"]].append(state)
        whole = {key: reduce(lambda older, newer: combine(self.plan, older, newer), of_key[key]) for key in of_key}
        return {key: finish(self.plan, state) for key, state in whole.items()}


def _value(rows: Shown, key: int, name: str) -> Any:
    row = rows.get(key)
    return None if row is None else row[name]


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
